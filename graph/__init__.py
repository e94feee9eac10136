"""Command graphs: nodes, what comes after what, and pictures of it. `Graph` knows no API; the order's steps are loader/schedule.py's."""

from .graph import Graph, Node

__all__ = ["Graph", "Node"]
