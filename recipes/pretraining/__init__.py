"""Training without labels: masked patches and masked autoencoders."""
