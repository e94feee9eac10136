"""An OpenCL layer that gives command-buffers to every driver, for every program, in C or Python.

It gives `cl_khr_command_buffer` 0.9.8, `cl_khr_command_buffer_mutable_dispatch` 0.9.5 and
`cl_khr_command_buffer_multi_device` 0.9.2 to each device of OpenCL 1.2 or later. A driver that has
all three in these versions or later is left alone. What runs the commands is icd/command_buffer, as
for captures: the engines `direct`, `native` and `replay`.

A loader that has layers loads `libfairlead_command_buffer.so` (`OPENCL_LAYERS`). It is C, and does
without Python until the first command-buffer is made:

| file in native/ | what it does |
|---|---|
| `layer.c` | begins: copies the loader's table, exchanges the functions of `HOOKS` (build.py) |
| `queries.c` | extension strings, queries of the extensions, addresses of their functions |
| `kernels.c` | keeps what the program sets on kernels, because OpenCL cannot be asked for it |
| `handles.c` | command-buffers as the program sees them; references; repeated enqueues |
| `events.c` | events of enqueued command-buffers: their type, queue and times |

All other functions are the loader's own, without a step between. The first call of an extension's
function that needs Python finds or starts one, as adapters do (plugins/sdk/native/python.c). The
modules here are its other side:

| module | what it does |
|---|---|
| `start` | puts a function into the layer for each function of the extensions; the end |
| `entries` | declares these functions; turns exceptions into codes; reads and writes memory |
| `buffers`, `buffer_calls` | a command-buffer: made, finalized, enqueued, asked |
| `recording`, `order` | what all commands have in common: sync-points, handles, order |
| `facts`, `memory` | what devices, kernels and memory objects say of themselves |
| `transfers`, `images`, `launches` | the commands, with the errors of their clEnqueue… functions |
| `updates`, `remap` | changes of launches; deep copies for other queues |

What is called a *queue's number* is its place in the list that the command-buffer was made with.
A sync-point is the number of its command plus one.

Enqueues of a command-buffer run one after the other, on any queue. An update never changes what
was enqueued. So simultaneous use is always allowed.
"""

from __future__ import annotations

from pathlib import Path


def find_library() -> Path:
    """The path of the layer's library."""
    return Path(__file__).parents[1] / "libfairlead_command_buffer.so"
