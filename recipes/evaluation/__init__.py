"""Evaluation of classifiers (`classification`, `vtab`) and of frozen features (`few_shot`, `probe`)."""
