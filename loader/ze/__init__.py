"""Level Zero: its ABI as data, and its drivers: found, probed, bound and checked."""
