"""Traces of calls: recording, printing, summaries."""
