"""How a model is trained: recipes, data, masked patches, optimizers, strategies. Installed as `keras_vit.recipes`."""
