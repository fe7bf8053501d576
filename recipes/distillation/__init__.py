"""Distillation from a teacher (DeiT, arXiv 2012.12877)."""
