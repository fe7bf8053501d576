"""Devices, replicas, workers and hosts of a run."""
