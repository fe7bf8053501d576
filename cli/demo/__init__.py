"""keras-vit demo."""
