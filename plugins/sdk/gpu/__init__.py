"""What adapters on CUDA's and HIP's driver functions have in common apart from the driver."""
