"""What one training run consists of: model, optimizer, losses, metrics, checkpoints, logs."""
