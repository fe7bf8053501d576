"""Devices, and the processes of one run: their strategy, start and end."""
