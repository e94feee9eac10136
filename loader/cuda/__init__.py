"""The CUDA driver API: its ABI, the driver library, and devices."""
