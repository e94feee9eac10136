"""The parts of adapters that are written in Python, and what builds their shared libraries."""
