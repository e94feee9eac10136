"""Level Zero: its ABI as data."""
