"""What the Unified Runtime specification demands of an adapter."""
