"""Programs of SPIR-V: specialization constants, and programs that are linked."""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any

import pytest

from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import URObjects
from fairlead.conformance.ur.spirv import SPEC_ID, make_importing_store, make_plus, make_store
from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR
from fairlead.plugins.ur_level_zero.devices import LZDevice

SET = "urProgramSetSpecializationConstants"
_MAY_IMPORT = UR["UR_EXP_PROGRAM_FLAG_ALLOW_UNRESOLVED_SYMBOLS"]


@pytest.fixture(autouse=True)
def spirv(behind: LZDevice) -> None:
    if not behind.takes_spirv:
        pytest.skip("needs a driver that takes SPIR-V: Intel's")


def constant(number: int, size: int, value: Any) -> Any:
    """Return one specialization constant."""
    address = ctypes.addressof(value) if value is not None else None
    made = UR.get_struct("ur_specialization_constant_info_t")(number, size, address)
    made.kept = value
    return made


def listed(*handles: int) -> Any:
    return (ctypes.c_void_p * len(handles))(*handles)


def stored(make: URObjects, queue: int, program: int, value: int) -> int:
    """Return what the kernel `store` of a program writes for a value."""
    buffer, kernel = make.buffer(), make.kernel("store", program=program)
    make.launch(queue, kernel, BufferValue(buffer), ctypes.c_int32(value))
    return make.read(queue, buffer)[0]


def test_wrong_constants_are_refused_at_once(make: URObjects, context: int, queue: int) -> None:
    program, ten, wide = make.il_program(), ctypes.c_int32(10), ctypes.c_int64(10)
    for given, code in (
        (constant(99, 4, ten), "INVALID_SPEC_ID"),
        (constant(SPEC_ID, 8, wide), "INVALID_VALUE"),
        (constant(SPEC_ID, 4, None), "INVALID_VALUE"),
        (constant(SPEC_ID, 4, ten), "SUCCESS"),
    ):
        found = make.ur.code(SET, program, 1, byref(given))
        assert found.removeprefix("UR_RESULT_").removeprefix("ERROR_") == code
    make.ur.ok("urProgramBuild", context, program)
    assert stored(make, queue, program, 5) == 15


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_linked_programs_keep_their_constants(
    make: URObjects, context: int, queue: int, order: tuple[int, int]
) -> None:
    programs = [make.il_program(data) for data in (make_importing_store(), make_plus())]
    make.ur.ok(SET, programs[1], 1, byref(constant(SPEC_ID, 4, ctypes.c_int32(20))))
    for program in programs:
        make.ur.ok("urProgramCompile", context, program)
    parts = listed(*(programs[place] for place in order))
    linked = make.own("urProgramRelease", make.ur.new("urProgramLink", context, 2, parts))
    assert stored(make, queue, linked, 5) == 25


def test_programs_that_lack_something_are_refused(
    make: URObjects, context: int, calls: URCalls
) -> None:
    program, made = make.il_program(make_importing_store()), ctypes.c_void_p()
    assert calls.code("urProgramBuild", context, program).endswith("PROGRAM_BUILD_FAILURE")
    make.ur.ok("urProgramCompile", context, program)
    given = context, 1, listed(program), None, byref(made)
    assert calls.code("urProgramLink", *given).endswith("PROGRAM_LINK_FAILURE")


def test_executables_are_linked_when_they_are_there(
    make: URObjects, context: int, queue: int, calls: URCalls
) -> None:
    programs = [
        make.il_program(data) for data in (make_importing_store(), make_plus(), make_store())
    ]
    for program in programs:
        make.ur.ok("urProgramBuildExp", program, 1, listed(make.device), _MAY_IMPORT)
    link = "urProgramDynamicLinkExp"
    code = calls.code(link, context, 1, listed(programs[0]))
    assert code.endswith("PROGRAM_LINK_FAILURE")
    make.ur.ok(link, context, 3, listed(*programs))
    assert stored(make, queue, programs[0], 5) == 5
