"""Command graphs: commands are recorded or added once, then ordered, partitioned, updated, and run
any number of times.

This is the whole of sycl_ext_oneapi_graph, written as Python writes it, on any Unified Runtime
adapter. `CommandGraph` is the modifiable graph, `ExecutableGraph` the finalized one. docs/graphs.md
is the guide. docs/command_graph_rules.md says where each rule is.
"""

from .allocation import async_free, async_malloc
from .command_graph import CommandGraph
from .dynamic import DynamicCommandGroup, DynamicLocalMemory, DynamicParameter
from .executable import ExecutableGraph
from .node import Node

__all__ = [
    "CommandGraph",
    "DynamicCommandGroup",
    "DynamicLocalMemory",
    "DynamicParameter",
    "ExecutableGraph",
    "Node",
    "async_free",
    "async_malloc",
]
