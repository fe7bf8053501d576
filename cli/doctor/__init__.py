"""keras-vit doctor."""
