"""The ResNet of hybrids and BiT: root, stages, units, standardized convolutions."""
