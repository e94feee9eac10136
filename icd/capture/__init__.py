"""Capture: what a queue is given inside a block is recorded instead of executed."""
