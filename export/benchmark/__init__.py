"""Latency and memory of .tflite files on this machine's CPU."""
