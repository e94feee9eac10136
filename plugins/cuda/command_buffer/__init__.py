"""Command-buffers as CUDA Graphs."""
