"""The projects whose checkpoints are read, one module each: naming, recognition, model arguments, preprocessing."""
