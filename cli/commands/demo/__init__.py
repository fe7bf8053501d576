"""The command `keras-vit demo`."""
