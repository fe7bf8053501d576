"""The command `keras-vit doctor`."""
