"""The command `keras-vit export`."""
