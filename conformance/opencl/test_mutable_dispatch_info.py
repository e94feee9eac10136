"""Queries of mutable commands, and the device's capabilities."""

from __future__ import annotations

import itertools

import pytest

from fairlead.conformance.arrays import sizes
from fairlead.conformance.checks import each, equal, rule
from fairlead.conformance.opencl.mutable import FIELDS, UPDATABLE, Mutable, field, ndrange
from fairlead.conformance.opencl.objects import CLObjects
from fairlead.icd.abi import OPENCL

KERNEL, INFO = "clCommandNDRangeKernelKHR", "clGetMutableCommandInfoKHR"


def _make_answers(mutable: Mutable, kernel: int) -> dict[str, bytes]:
    """Return each query and its answer, for the command of `_record_command`.

    The command has 12 work-items in groups of 4 at offset 2. Its global size is updatable.
    """

    def encode(value: int, size: int = 8) -> bytes:
        return value.to_bytes(size, "little")

    return {
        "CL_MUTABLE_COMMAND_COMMAND_QUEUE_KHR": encode(mutable.recorder.queue),
        "CL_MUTABLE_COMMAND_COMMAND_BUFFER_KHR": encode(mutable.recorder.handle),
        "CL_MUTABLE_COMMAND_COMMAND_TYPE_KHR": encode(OPENCL["CL_COMMAND_NDRANGE_KERNEL"], 4),
        "CL_MUTABLE_COMMAND_PROPERTIES_ARRAY_KHR": encode(UPDATABLE)
        + encode(field("GLOBAL_SIZE"))
        + encode(0),
        "CL_MUTABLE_DISPATCH_KERNEL_KHR": encode(kernel),
        "CL_MUTABLE_DISPATCH_DIMENSIONS_KHR": encode(1, 4),
        "CL_MUTABLE_DISPATCH_GLOBAL_WORK_OFFSET_KHR": encode(2),
        "CL_MUTABLE_DISPATCH_GLOBAL_WORK_SIZE_KHR": encode(12),
        "CL_MUTABLE_DISPATCH_LOCAL_WORK_SIZE_KHR": encode(4),
    }


QUERIES = list(OPENCL.groups["cl_mutable_command_info_khr"].values())


def _record_command(mutable: Mutable, objects: CLObjects) -> tuple[int, int]:
    """Record the launch of `_make_answers`. Returns the command and its kernel."""
    kernel = objects.kernel("increment", objects.buffer([0] * 16))
    range_ = {"local_work_size": sizes(4), "global_work_offset": sizes(2)}
    return mutable.launch(kernel, 12, "GLOBAL_SIZE", **range_), kernel


@pytest.mark.parametrize("name", each(QUERIES, INFO, "{} is what was given at recording"))
def test_query(mutable: Mutable, objects: CLObjects, name: str) -> None:
    command, kernel = _record_command(mutable, objects)
    equal(mutable.info(command, name), _make_answers(mutable, kernel)[name], "the answer")


@rule(INFO, "answers what an update has changed")
def test_query_after_update(mutable: Mutable, objects: CLObjects) -> None:
    mutable.needs("GLOBAL_OFFSET", "GLOBAL_SIZE", "LOCAL_SIZE")
    kernel = objects.kernel("increment", objects.buffer([0] * 64))
    command = mutable.launch(kernel, 12, *FIELDS[:3], local_work_size=sizes(4))
    mutable.recorder.finalize()
    mutable.update(
        ndrange(command, global_work_offset=[3], global_work_size=[32], local_work_size=[8])
    )
    names = ("OFFSET", "SIZE")
    answers = [
        mutable.info(command, f"CL_MUTABLE_DISPATCH_GLOBAL_WORK_{name}_KHR") for name in names
    ]
    answers.append(mutable.info(command, "CL_MUTABLE_DISPATCH_LOCAL_WORK_SIZE_KHR"))
    equal(
        [int.from_bytes(answer, "little") for answer in answers],
        [3, 32, 8],
        "offset, global and local size",
    )


@rule(INFO, "answers zeros for an offset and a local size that were not given")
def test_query_of_defaults(mutable: Mutable, objects: CLObjects) -> None:
    command = mutable.launch(objects.kernel("increment", objects.buffer([0] * 16)), 8)
    names = ("GLOBAL_WORK_OFFSET", "LOCAL_WORK_SIZE")
    answers = [mutable.info(command, f"CL_MUTABLE_DISPATCH_{name}_KHR") for name in names]
    equal(answers, [bytes(8), bytes(8)], "the answers")


@rule(INFO, "answers no properties (size 0) if none were given")
def test_query_of_no_properties(mutable: Mutable, objects: CLObjects) -> None:
    command = mutable.launch(objects.kernel("increment", objects.buffer([0] * 16)), 8)
    equal(mutable.info(command, "CL_MUTABLE_COMMAND_PROPERTIES_ARRAY_KHR"), b"", "the properties")


@rule("clGetDeviceInfo", "CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR has 8 bytes, and known bits")
def test_capabilities(mutable: Mutable, objects: CLObjects) -> None:
    answer = objects.info(
        "clGetDeviceInfo", objects.device, "CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR"
    )
    known = sum(map(field, FIELDS))
    equal(
        (len(answer), int.from_bytes(answer, "little") & ~known), (8, 0), "bytes, and unknown bits"
    )


@rule(KERNEL, "gives each command a handle of its own")
def test_handles(mutable: Mutable, objects: CLObjects) -> None:
    kernel = objects.kernel("increment", objects.buffer([0] * 16))
    found = [mutable.launch(kernel, 8) for _ in range(4)]
    equal(
        [one for one, two in itertools.combinations(found, 2) if one == two],
        [],
        "handles that are the same",
    )
