"""The commands `keras-vit export` and `keras-vit benchmark`."""
