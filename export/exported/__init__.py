"""Exported files, opened as their users open them, and compared with Keras."""
