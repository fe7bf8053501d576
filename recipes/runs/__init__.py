"""What a run knows about itself, worked out once. Read open_run.py first: it makes the `OpenRun` of a recipe."""
