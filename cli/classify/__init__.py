"""`keras-vit classify`."""
