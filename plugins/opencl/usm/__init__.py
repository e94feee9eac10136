"""Unified shared memory of the reference adapter."""
