"""A training run: loop, model, optimizer, losses, metrics, EMA, logs."""
