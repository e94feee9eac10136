"""Every info query: the size of its answer, and the answer to a wrong query.

pi.h has the list of queries.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.conformance.checks import each, equal, expect, forked, name_of, rule, unsupported
from fairlead.conformance.ur.world import World
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi.abi import PI

#: The answers to a query that a plugin does not know. pi.h lists no errors.
UNKNOWN = (
    *(
        "PI_ERROR_INVALID_VALUE",
        "PI_ERROR_UNSUPPORTED_FEATURE",
        "PI_ERROR_INVALID_OPERATION",
        "PI_ERROR_INVALID_PROPERTY",
    ),
    "PI_ERROR_UNKNOWN",
)

#: Function, the group of its queries, and the arguments before the query.
QUERIES: dict[str, tuple[str, Callable[[World], tuple[int, ...]]]] = {
    "piPlatformGetInfo": ("pi_platform_info", lambda w: (w.platform,)),
    "piDeviceGetInfo": ("pi_device_info", lambda w: (w.device,)),
    "piContextGetInfo": ("pi_context_info", lambda w: (w.the_context,)),
    "piQueueGetInfo": ("pi_queue_info", lambda w: (w.the_queue,)),
    "piMemGetInfo": ("pi_mem_info", lambda w: (w.the_buffer,)),
    "piEventGetInfo": ("pi_event_info", lambda w: (w.the_event,)),
    "piSamplerGetInfo": ("pi_sampler_info", lambda w: (w.the_sampler,)),
    "piProgramGetInfo": ("pi_program_info", lambda w: (w.the_program,)),
    "piProgramGetBuildInfo": ("pi_program_build_info", lambda w: (w.the_program, w.device)),
    "piKernelGetInfo": ("pi_kernel_info", lambda w: (w.the_kernel,)),
    "piKernelGetGroupInfo": ("pi_kernel_group_info", lambda w: (w.the_kernel, w.device)),
    "piextUSMGetMemAllocInfo": ("pi_mem_alloc_info", lambda w: (w.the_context, w.the_usm)),
}

#: Queries that break the protocol: the plugin writes the answer through pointers of the caller's.
_ODD = ("PI_PROGRAM_INFO_BINARIES",)


def list_queries(group: str) -> list[str]:
    """Return the names of a group, one for each value."""
    return [name for name in PI.groups[group].values() if name not in _ODD]


def find_size(answer: str) -> int:
    """Return how many bytes an answer of a type has, 0 if the data does not say.

    The answer's size is a multiple of it for an array.
    """
    if not answer:
        return 0
    if answer.endswith(("*", "*[]")):
        return 8
    return ctypes.sizeof(PI.make_ctype(answer.removesuffix("[]")))


@pytest.fixture
def owner(routine: str, world: World) -> tuple[int, ...]:
    """The arguments before the query."""
    return QUERIES[routine][1](world)


EVERY = [
    pytest.param(
        routine, name, id=name, marks=rule(routine, f"{name} is answered, with a value of its type")
    )
    for routine, (group, _) in QUERIES.items()
    for name in list_queries(group)
]


@forked
@pytest.mark.parametrize(("routine", "name"), EVERY)
def test_query(pi: DispatchTable, owner: tuple[int, ...], routine: str, name: str) -> None:
    call, size, constant = getattr(pi, routine), ctypes.c_size_t(), PI.constants[name]
    code = call(*owner, constant.value, 0, None, ctypes.byref(size))
    if name_of(PI, code) in UNKNOWN:
        unsupported(f"the plugin does not know it ({name_of(PI, code)})")
    expect(PI, code, "PI_SUCCESS")
    one = find_size(constant.answer)
    if constant.answer.endswith("[]"):
        equal(
            size.value % max(one, 1),
            0,
            f"{size.value} bytes are an array of {constant.answer}: the rest of the division",
        )
    elif one:
        equal(size.value, one, f"bytes of a {constant.answer}")
    room = ctypes.create_string_buffer(size.value + 8)
    expect(
        PI,
        call(*owner, constant.value, size.value, room, None),
        "PI_SUCCESS",
        what="the second call",
    )
    equal(room.raw[size.value :], bytes(8), "what is after the room")
    if constant.answer == "char[]":
        equal(room.raw[: size.value][-1:], b"\0", "the last byte of the text")


@forked
@pytest.mark.parametrize("routine", each(QUERIES, "{}", "an error if there is no such query"))
def test_unknown_query(pi: DispatchTable, owner: tuple[int, ...], routine: str) -> None:
    size = ctypes.c_size_t()
    code = getattr(pi, routine)(*owner, 0x7FFF_FFFF, 0, None, ctypes.byref(size))
    expect(PI, code, *UNKNOWN)


#: A query of each function with an answer of at least four bytes.
SOME = {
    "piPlatformGetInfo": "PI_PLATFORM_INFO_NAME",
    "piDeviceGetInfo": "PI_DEVICE_INFO_NAME",
    "piContextGetInfo": "PI_CONTEXT_INFO_DEVICES",
    "piQueueGetInfo": "PI_QUEUE_INFO_CONTEXT",
    "piMemGetInfo": "PI_MEM_SIZE",
    "piEventGetInfo": "PI_EVENT_INFO_CONTEXT",
    "piSamplerGetInfo": "PI_SAMPLER_INFO_CONTEXT",
    "piProgramGetInfo": "PI_PROGRAM_INFO_CONTEXT",
    "piProgramGetBuildInfo": "PI_PROGRAM_BUILD_INFO_STATUS",
    "piKernelGetInfo": "PI_KERNEL_INFO_CONTEXT",
    "piKernelGetGroupInfo": "PI_KERNEL_GROUP_INFO_WORK_GROUP_SIZE",
    "piextUSMGetMemAllocInfo": "PI_MEM_ALLOC_SIZE",
}


@forked
@pytest.mark.parametrize(
    "routine",
    [
        pytest.param(
            r,
            id=r,
            marks=rule(r, f"an error about the size if there is too little room for {SOME[r]}"),
        )
        for r in SOME
    ],
)
def test_too_small(pi: DispatchTable, owner: tuple[int, ...], routine: str) -> None:
    room: Any = ctypes.create_string_buffer(64)
    code = getattr(pi, routine)(*owner, PI[SOME[routine]], 2, room, None)
    expect(PI, code, "PI_ERROR_INVALID_VALUE", "PI_ERROR_INVALID_BUFFER_SIZE")


#: Handles that queries must answer: what is asked, and the answer that the case knows.
KNOWN: dict[str, tuple[str, Callable[[World], int]]] = {
    "PI_CONTEXT_INFO_DEVICES": ("piContextGetInfo", lambda w: w.device),
    "PI_CONTEXT_INFO_PLATFORM": ("piContextGetInfo", lambda w: w.platform),
    "PI_QUEUE_INFO_CONTEXT": ("piQueueGetInfo", lambda w: w.the_context),
    "PI_QUEUE_INFO_DEVICE": ("piQueueGetInfo", lambda w: w.device),
    "PI_MEM_CONTEXT": ("piMemGetInfo", lambda w: w.the_context),
    "PI_EVENT_INFO_CONTEXT": ("piEventGetInfo", lambda w: w.the_context),
    "PI_EVENT_INFO_COMMAND_QUEUE": ("piEventGetInfo", lambda w: w.the_queue),
}


@forked
@pytest.mark.parametrize(
    ("routine", "name"),
    [
        pytest.param(
            KNOWN[n][0], n, id=n, marks=rule(KNOWN[n][0], f"{n} is what the object was made with")
        )
        for n in KNOWN
    ],
)
def test_handles(
    pi: DispatchTable, world: World, owner: tuple[int, ...], routine: str, name: str
) -> None:
    value = ctypes.c_uint64()
    expect(PI, getattr(pi, routine)(*owner, PI[name], 8, ctypes.byref(value), None), "PI_SUCCESS")
    equal(value.value, KNOWN[name][1](world), "the handle")
