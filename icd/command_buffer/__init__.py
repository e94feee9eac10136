"""Command-buffers on any OpenCL driver: commands, order, plan, lifetimes, updates, and engines."""
