"""Random calls of the adapter's C ABI, and the model that says what has to come of them."""
