"""Masked autoencoder, arXiv 2111.06377."""
