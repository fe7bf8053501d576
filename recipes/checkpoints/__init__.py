"""The folder of a run: checkpoints, the run's identity and lock, and saving on SIGTERM and Ctrl-C."""
