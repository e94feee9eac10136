"""The engines, one in each file. `choice.py` has the table of them."""
