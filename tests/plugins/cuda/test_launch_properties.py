"""Launches whose work-groups run at the same time, or form clusters."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from fairlead.loader.ur.abi import UR

from .conftest import COUNT, Adapted, Knobs, Work, only_cuda, only_hip

_COOPERATIVE = UR["UR_KERNEL_LAUNCH_FLAG_COOPERATIVE"]


def _properties(*cluster: int, flags: int = 0) -> Any:
    """Return launch properties with a cluster, in DPC++'s order."""
    one = UR.get_struct("ur_kernel_launch_cluster_property_t")()
    one.stype = UR["UR_STRUCTURE_TYPE_KERNEL_LAUNCH_CLUSTER_PROPERTY"]
    one.clusterDim[:] = cluster or (1, 1, 1)
    made = UR.get_struct("ur_kernel_launch_ext_properties_t")()
    made.stype = UR["UR_STRUCTURE_TYPE_KERNEL_LAUNCH_EXT_PROPERTIES"]
    made.pNext, made.flags, made.keep = ctypes.addressof(one), flags, one
    return made


def _launch(work: Work, properties: Any, size: Any, local: Any) -> str:
    kernel, out = work.kernel("add_one"), work.memory()
    work.put(out, bytes(4 * COUNT))
    sizes = [one and (ctypes.c_size_t * len(one))(*one) for one in (size, local)]
    given = work.queue, kernel, len(size), None, *sizes, *work.arguments(out)
    code = work.ur("urEnqueueKernelLaunchWithArgsExp", *given, ctypes.byref(properties))
    if code == "SUCCESS":
        assert work.numbers(out, size[0]) == [size[1] if len(size) > 1 else 1] * size[0]
    return code


@only_cuda
@pytest.mark.parametrize("flags", [0, _COOPERATIVE])
@pytest.mark.parametrize(
    ("size", "local", "cluster", "seen"),
    [
        ((64,), (8,), (4, 1, 1), [4, 1, 1]),
        ((64,), (4,), (16, 1, 1), [16, 1, 1]),
        ((64,), None, (16, 1, 1), [16, 1, 1]),
        ((64, 4), (8, 2), (2, 4, 1), [4, 2, 1]),
        ((64, 4, 1), (8, 2, 1), (1, 2, 4), [4, 2, 1]),
    ],
)
def test_work_groups_form_clusters(
    work: Work, fake: Knobs, size: Any, local: Any, cluster: Any, seen: list[int], flags: int
) -> None:
    before = fake.calls("LaunchKernelEx")
    if len(size) == 1:  # what it computes is seen
        assert _launch(work, _properties(*cluster, flags=flags), size, local) == "SUCCESS"
    else:
        out = work.memory()
        sizes = [(ctypes.c_size_t * len(one))(*one) for one in (size, local)]
        given = work.queue, work.kernel("store"), len(size), None, *sizes
        rows = work.arguments(out, ctypes.c_int32(9))
        how = ctypes.byref(_properties(*cluster, flags=flags))
        work.ur.ok("urEnqueueKernelLaunchWithArgsExp", *given, *rows, how)
        assert work.numbers(out) == [9] * COUNT
    assert list((ctypes.c_uint32 * 3).in_dll(fake.library, "fake_cuda_cluster")) == seen
    assert fake.calls("LaunchKernelEx") - before == 1


@only_cuda
@pytest.mark.parametrize(
    ("cluster", "code"),
    [
        ((3, 1, 1), "INVALID_VALUE"),  # 8 work-groups
        ((32, 1, 1), "INVALID_WORK_GROUP_SIZE"),
        ((0, 1, 1), "INVALID_VALUE"),
    ],
)
def test_clusters_that_no_launch_can_have(work: Work, fake: Knobs, cluster: Any, code: str) -> None:
    assert _launch(work, _properties(*cluster), (64,), (8,)) == code


def test_a_cluster_of_one_work_group_is_none(work: Work, adapted: Adapted) -> None:
    assert _launch(work, _properties(), (64,), (8,)) == "SUCCESS"


@only_hip
def test_hip_has_no_clusters(work: Work) -> None:
    assert _launch(work, _properties(2, 1, 1), (64,), (8,)) == "INVALID_OPERATION"


@only_cuda
def test_the_device_says_what_launches_can_have(work: Work, fake: Knobs) -> None:
    found = work.ur.number(
        "urDeviceGetInfo", work.device, "UR_DEVICE_INFO_KERNEL_LAUNCH_CAPABILITIES"
    )
    both = "COOPERATIVE", "CLUSTER_DIMENSION"
    assert found == sum(UR[f"UR_KERNEL_LAUNCH_PROPERTIES_FLAG_{name}"] for name in both)
