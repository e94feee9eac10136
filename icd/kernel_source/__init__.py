"""What kernels read and write, from their source in OpenCL C.

- `preprocessor.py` and `parsing.py` make a syntax tree of the source: C for pycparser.
- `syntax.py`, `constants.py` and `c_types.py` answer what a part of the tree is.
- `polynomials.py`, `conditions.py` and `values.py`: the values that the analysis knows.
- `walk.py` follows a kernel from statement to statement. `evaluation.py` notes each access to
  memory, and `variables.py` keeps what is known of each variable. `growth.py` says which ones a
  loop lets grow.
- `reading.py` has `read_kernel`: what each argument's accesses mean for one item.

Nothing imports this package before a graph is rewritten: it needs pycparser.
"""
