"""Invalid handles: other memory, an object of another kind, a released object.

The specification leaves undefined what an adapter does with them (INTRO, Error handling). So these
cases are beyond it. An adapter is better if it answers the code for the kind of object instead of
crashing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.conformance.arrays import handles
from fairlead.conformance.checks import (
    beyond_specification,
    each,
    expect,
    forked,
    rule,
    unsupported,
)
from fairlead.conformance.ur.arguments import Call
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.kinds import KINDS
from fairlead.conformance.ur.objects import URObjects
from fairlead.conformance.ur.world import World
from fairlead.loader.base.abi import Function, Parameter
from fairlead.loader.ur.abi import UR

CODES = {name for name, _ in UR.errors.values()}
HOW = ("other memory", "another kind", "released")

#: The kinds of `kinds.py` by the type of their handles.
MADE = {
    "ur_context_handle_t": "context",
    "ur_queue_handle_t": "queue",
    "ur_event_handle_t": "event",
    "ur_mem_handle_t": "buffer",
    "ur_sampler_handle_t": "sampler",
    "ur_program_handle_t": "program",
    "ur_kernel_handle_t": "kernel",
    "ur_usm_pool_handle_t": "pool",
    "ur_physical_mem_handle_t": "physical-memory",
    "ur_exp_command_buffer_handle_t": "command-buffer",
}


def list_codes(kind: str) -> list[str]:
    """Return the codes for an invalid handle of this type: its own, else those for any argument."""
    stem = kind.removeprefix("ur_").removeprefix("exp_").removesuffix("_handle_t").upper()
    names = [
        f"UR_RESULT_ERROR_INVALID_{stem}{end}" for end in ("", "_OBJECT", "_EXP", "_HANDLE_EXP")
    ]
    own = [name for name in names if name in CODES]
    others = ["VALUE", "ARGUMENT", "NULL_HANDLE"]
    if stem == "ADAPTER":
        others.sort()
    return own + [f"UR_RESULT_ERROR_INVALID_{other}" for other in others]


def handle_parameters() -> Iterator[tuple[Function, Parameter]]:
    newest = {name for table in next(iter(UR.layouts.values())).values() for name in table}
    for function in UR.slots:
        for p in function.parameters:
            if function.name in newest and not p.stars and UR.resolve(p.type) == "handle":
                yield function, p


CASES = [
    pytest.param(
        f.name,
        p,
        how,
        id=f"{f.name}-{p.name}-{how.replace(' ', '_')}",
        marks=rule(f.name, f"{p.name} is {how}"),
    )
    for f, p in handle_parameters()
    for how in HOW
    if how != "released" or p.type in MADE
]


def make_wrong_handle(world: World, make: URObjects, kind: str, how: str) -> int:
    """Return an invalid handle of this type."""
    if how == "other memory":
        return ctypes.addressof(world.keep(ctypes.create_string_buffer(4096)))
    if how == "another kind":
        return world.the_context if kind != "ur_context_handle_t" else world.device
    made = next(k for k in KINDS if k.name == MADE[kind]).make(make, world)
    make.release(made)
    return made


@pytest.fixture
def call(
    world: World, ur: URCalls, make: URObjects, function: str, parameter: Parameter, how: str
) -> Call:
    """A call of the function with an invalid handle."""
    if not ur.has(function):
        unsupported(f"the adapter has no {function}")
    made = Call(world, function)
    made.arguments[parameter.name] = make_wrong_handle(world, make, parameter.type, how)
    return made


@beyond_specification
@forked
@pytest.mark.parametrize(("function", "parameter", "how"), CASES)
def test_wrong_handle(
    ur: URCalls, function: str, parameter: Parameter, how: str, call: Call
) -> None:
    code = call()
    ur.check_supported(function, code)
    expect(UR, code, *list_codes(parameter.type))


LISTS = [
    f.name
    for f in UR.slots
    if {"phEventWaitList", "numEventsInWaitList"} <= {p.name for p in f.parameters}
]


@pytest.fixture
def listed(world: World, ur: URCalls, function: str) -> Call:
    """A call of the function with a list of an invalid handle."""
    if not ur.has(function):
        unsupported(f"the adapter has no {function}")
    made, wrong = Call(world, function), world.keep(ctypes.create_string_buffer(4096))
    entries: Any = world.keep(handles(ctypes.addressof(wrong)))
    made.arguments.update(numEventsInWaitList=1, phEventWaitList=entries)
    return made


@beyond_specification
@forked
@pytest.mark.parametrize(
    "function", each(LISTS, "{}", "phEventWaitList leads to a handle that is none")
)
def test_wrong_event_in_list(ur: URCalls, function: str, listed: Call) -> None:
    code = listed()
    ur.check_supported(function, code)
    expect(UR, code, "UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST", "UR_RESULT_ERROR_INVALID_EVENT")


#: Where no program has memory.
NOWHERE = 64


def address_parameters() -> Iterator[tuple[Function, Parameter]]:
    """Yield the parameters of functions for USM that have to lead to memory.

    urUSMGetMemAllocInfo answers for any address.
    """
    for function in UR.slots:
        if "USM" in function.name and not function.name.endswith("GetMemAllocInfo"):
            for p in function.parameters:
                if p.name in ("pMem", "pMemory", "pDst", "pSrc"):
                    yield function, p


ADDRESSES = [
    pytest.param(
        f.name, p, id=f"{f.name}-{p.name}", marks=rule(f.name, f"{p.name} leads to no memory")
    )
    for f, p in address_parameters()
]


@pytest.fixture
def addressed(world: World, ur: URCalls, function: str, parameter: Parameter) -> Call:
    """A call of the function with an address at which there is no memory."""
    if not ur.has(function):
        unsupported(f"the adapter has no {function}")
    made = Call(world, function)
    made.arguments[parameter.name] = NOWHERE
    return made


@beyond_specification
@forked
@pytest.mark.parametrize(("function", "parameter"), ADDRESSES)
def test_address_of_no_memory(
    ur: URCalls, function: str, parameter: Parameter, addressed: Call
) -> None:
    code = addressed()
    ur.check_supported(function, code)
    expect(UR, code, "UR_RESULT_ERROR_INVALID_MEM_OBJECT", "UR_RESULT_ERROR_INVALID_VALUE")
