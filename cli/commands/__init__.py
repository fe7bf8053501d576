"""One module, or folder, for each command of `keras-vit`."""
