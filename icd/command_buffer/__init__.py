"""Command-buffers on any OpenCL driver: commands, order, plan, lifetimes, updates, and the engines that run them."""
