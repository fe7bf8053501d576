"""Accuracy of classifiers and quality of frozen features."""
