"""Graphs as files: captured graphs written down, read, loaded on any driver, and compared."""
