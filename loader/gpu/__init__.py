"""What drivers of GPUs have in common: how one is found, tried, bound and asked for its devices."""
