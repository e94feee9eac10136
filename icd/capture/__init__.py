"""Capture: commands of queues inside a block are recorded instead of executed."""
