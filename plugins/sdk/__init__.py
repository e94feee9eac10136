"""What every adapter written in Python is made of, and how it becomes a drop-in shared library."""
