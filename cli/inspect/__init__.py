"""keras-vit inspect."""
