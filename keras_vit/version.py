"""The version, in a separate file so that setup.cfg reads it without importing Keras."""

__version__ = "0.1.0"
