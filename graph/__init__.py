"""Command graphs: what comes after what, and in which order and on which queues it is run.

`graph.Graph` is the structure, `schedule` turns it into steps. Neither knows OpenCL.
"""

from .graph import Graph, Node
from .schedule import Schedule, Step, plan

__all__ = ["Graph", "Node", "Schedule", "Step", "plan"]
