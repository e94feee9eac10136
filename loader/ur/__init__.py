"""Unified Runtime: its ABI, and how adapters (and PI plugins) are found, opened and checked."""
