"""The number of masked patches of an image. No TensorFlow import here. N patches, M masked patches."""


def masked_count(num_patches: int, fraction: float) -> int:
    """M, the number of masked patches of an image; at least one, and at most N - 1.

    Raises:
        ValueError: The fraction is not in (0, 1), or there are fewer than two patches.
    """
    if not 0.0 < fraction < 1.0:
        raise ValueError(
            f"masked_fraction must be in (0, 1), both excluded. Received: masked_fraction={fraction}. MAE uses 0.75."
        )
    if num_patches < 2:
        raise ValueError(
            f"A masked autoencoder requires at least two patches per image. Received: {num_patches}. Use larger images "
            "or smaller patches."
        )
    return min(max(1, round(num_patches * fraction)), num_patches - 1)
