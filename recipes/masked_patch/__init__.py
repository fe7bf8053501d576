"""Masked-patch pre-training, appendix B.1.2 of the paper."""
