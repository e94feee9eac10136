"""Rewrites: recorded commands become other commands that do the same, bit for bit.

- `rewriting.py` rewrites the commands of a graph in a thread, while replays run as captured.
- `fusion.py` makes one kernel of launches over the same items.
- `reductions.py` lets a kernel that works in groups calculate what launches wrote for it.
- `launches.py` reads what a recorded launch does: its kernel's source, and its arguments.

Engines run the rewritten commands and know nothing of it (planning.py).
"""
