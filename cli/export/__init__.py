"""keras-vit export."""
