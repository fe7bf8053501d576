"""The command `keras-vit inspect`."""
