"""What kernels read and write, from their source in OpenCL C.

- `preprocessor.py` and `parsing.py` make a syntax tree of the source: C for pycparser.
- `polynomials.py`, `c_types.py`, `conditions.py`: the values that the analysis knows.
- `walk.py` follows a kernel from statement to statement, and notes each access to memory.
- `reading.py` has `read_kernel`: what each argument's accesses mean for one item.

Nothing imports this package before a graph is rewritten: it needs pycparser.
"""
