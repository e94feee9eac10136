"""HIP, AMD's driver API for GPUs: its ABI, its library, and devices."""
