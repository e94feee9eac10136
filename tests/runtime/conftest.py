"""The fixtures of tests/helpers/sycl.py: every test of a `device` runs on every driver."""

from helpers.sycl import (  # noqa: F401
    context,
    device,
    device_gate,
    gate,
    in_order,
    memory,
    other_device,
    parts,
    program,
    queue,
)
