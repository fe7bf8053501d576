"""Random weights for toys."""

import numpy as np


def randomize(model, scale=0.1, seed=7):
    """Adds normal noise to all weights, so that no head of zeros hides differences before it; returns the model."""
    random = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(weight + scale * random.standard_normal(weight.shape))
    return model
