"""Which devices a command graph can be for."""

from __future__ import annotations

from collections.abc import Iterable

from ..runtime.checks import as_list
from ..runtime.context import Context
from ..runtime.errors import make_invalid_error
from ..runtime.platform import Device


def find_graph_devices(
    context: Context, device: Device | Iterable[Device] | None
) -> tuple[Device, ...]:
    """Return the devices of a graph.

    Args:
        device: one or several of its devices; None means the first one.

    Raises:
        SYCLError: invalid, for no device, for one of another context, and for one whose adapter
            has no command-buffers.
    """
    given = context.devices[:1] if device is None else device
    wanted: tuple[Device, ...] = tuple(
        as_list(given, Device, "CommandGraph", "CommandGraph(context, device)")
    )
    if not wanted:
        raise make_invalid_error(
            "a graph needs a device", routine="CommandGraph", remedy="CommandGraph(context, device)"
        )
    for one in wanted:
        if one not in context:
            raise make_invalid_error(
                f"{one.name} is not a device of the context",
                routine="CommandGraph",
                remedy="give a device of the context",
            )
        if not one.has("ext_oneapi_limited_graph"):
            raise make_invalid_error(
                f"{one.backend} backend is not supported by SYCL Graph extension.",
                routine="CommandGraph",
                remedy="use an adapter with command-buffers: the reference adapter has "
                "them on every OpenCL driver",
            )
    return wanted
