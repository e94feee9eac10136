"""Rewrites: recorded commands become other commands that do the same, bit for bit.

- `rewriting.py` rewrites the commands of a graph in a thread, while replays run as captured.
- `fusion.py` makes one kernel of launches over the same items.
- `reductions.py` makes PyOpenCL's reductions the last launches of such a kernel.
- `launches.py` reads what a recorded launch does: its kernel (`kernels.py`), its arguments
  (`arguments.py`), and the bytes that it uses (`used_bytes.py`). `transfers.py` reads copies.
- `runs.py` finds the launches that become one, `places.py` what a variable stands for.
- `parameters.py` and `sources.py` write the new kernel, `fused_runs.py` builds and launches it.

Engines run the rewritten commands and know nothing of it (planning.py).
"""
