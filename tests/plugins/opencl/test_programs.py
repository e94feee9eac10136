"""Programs of the reference adapter: from text, SPIR-V and binaries, built and not, and what they
are asked."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest
from helpers.launching import (
    SOURCE,
    UNRESOLVED,
    Numbers,
    built,
    is_intel,
    last_error,
    launch,
    native,
    program_of,
    takes_spirv,
)
from helpers.ur_calls import Calls, array

from fairlead.conformance.ur.spirv import SPEC_ID, make_store
from fairlead.icd.abi import OPENCL
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice
from fairlead.plugins.opencl.core import adapter as reference

SIZE = ctypes.c_size_t


def build_info(ur: Calls, program: int, device: PluginDevice, name: str) -> bytes:
    size = SIZE()
    ur.ok("urProgramGetBuildInfo", program, device.handle, UR[name], 0, None, ctypes.byref(size))
    value = ctypes.create_string_buffer(size.value)
    ur.ok("urProgramGetBuildInfo", program, device.handle, UR[name], size.value, value)
    return value.raw


def status(ur: Calls, program: int, device: PluginDevice) -> int:
    return int.from_bytes(build_info(ur, program, device, "UR_PROGRAM_BUILD_INFO_STATUS"), "little")


def binaries(ur: Calls, program: int) -> list[bytes]:
    sizes = ur.info("urProgramGetInfo", program, "UR_PROGRAM_INFO_BINARY_SIZES")
    buffers = [ctypes.create_string_buffer(size) for (size,) in struct.iter_unpack("@N", sizes)]
    pointers = array(*map(ctypes.addressof, buffers))
    given = program, UR["UR_PROGRAM_INFO_BINARIES"], ctypes.sizeof(pointers), pointers, None
    ur.ok("urProgramGetInfo", *given)
    return [buffer.raw for buffer in buffers]


def from_binaries(
    ur: Calls, context: int, device: PluginDevice, *given: bytes | None
) -> tuple[str, int]:
    made = ctypes.c_void_p()
    lengths = (SIZE * len(given))(*(len(binary or b"") for binary in given))
    pointers = (ctypes.c_char_p * len(given))(*given)
    arguments = context, len(given), array(*[device.handle] * len(given)), lengths, pointers, None
    code = ur("urProgramCreateWithBinary", *arguments, made)
    return code, made.value or 0


def runs(ur: Calls, context: int, queue: int, program: int, *expected: int, value: int = 5) -> None:
    """Whether its kernel `store` does what it is to do."""
    numbers = Numbers(ur, context, len(expected))
    kernel = ur.make("urKernelCreate", program, b"store").value or 0
    assert launch(ur, queue, kernel, (len(expected),), numbers.argument, value) == "SUCCESS"
    assert numbers.read(queue) == list(expected)
    ur.ok("urMemRelease", numbers.handle)
    ur.ok("urKernelRelease", kernel)


# made and built


def test_text_is_opencl_c(ur: Calls, context: int, queue: int) -> None:
    for source in (SOURCE, SOURCE + b"\0\0", b"// \xc3\xa4\n" + SOURCE):
        program = built(ur, context, source)
        runs(ur, context, queue, program, 5, 6, 7)
        assert ur.info("urProgramGetInfo", program, "UR_PROGRAM_INFO_IL") == b""
        ur.ok("urProgramRelease", program)


def test_spirv_is_for_drivers_that_take_it(
    ur: Calls, context: int, queue: int, device: PluginDevice
) -> None:
    made, module = ctypes.c_void_p(), make_store()
    code = ur("urProgramCreateWithIL", context, module, len(module), None, made)
    if not takes_spirv(ur, device):
        assert code == "COMPILER_NOT_AVAILABLE"
        return
    program = made.value or 0
    ur.ok("urProgramBuild", context, program)
    runs(ur, context, queue, program, 5, 5, 5)
    assert ur.info("urProgramGetInfo", program, "UR_PROGRAM_INFO_IL") == module


def test_what_is_neither_is_no_program(ur: Calls, context: int) -> None:
    made, metadata = ctypes.c_void_p(), UR.get_struct("ur_program_properties_t")()
    ptx = b".version 8.0\n.target sm_50\n"
    for data in (bytes(range(5)), b"\0\0\0", b"\xff\xfe", b"text\x01", ptx):
        given = "urProgramCreateWithIL", context, data, len(data), None, ctypes.byref(made)
        assert ur(*given) == "INVALID_BINARY"
    assert ur("urProgramCreateWithIL", context, SOURCE, 0, None, made) == "INVALID_SIZE"
    metadata.count = 1
    arguments = (context, SOURCE, len(SOURCE), ctypes.byref(metadata), ctypes.byref(made))
    assert ur("urProgramCreateWithIL", *arguments) == "INVALID_NULL_POINTER"
    metadata.count, metadata.pMetadatas = 0, ctypes.addressof(metadata)
    assert ur("urProgramCreateWithIL", *arguments) == "INVALID_SIZE"


def test_a_failed_link_leaves_the_log(ur: Calls, context: int, device: PluginDevice) -> None:
    given = ur, context, UNRESOLVED
    compiled, fresh, made = program_of(*given), program_of(ur, context), ctypes.c_void_p(1)
    ur.ok("urProgramCompile", context, compiled)
    given = "urProgramLink", context, 1, array(compiled), None, ctypes.byref(made)
    assert ur(*given) == "PROGRAM_LINK_FAILURE"
    if is_intel(device):  # a driver may give the program whose log says why
        assert b"elsewhere" in build_info(ur, made.value or 0, device, "UR_PROGRAM_BUILD_INFO_LOG")
        assert "elsewhere" in last_error(ur)[0]
        ur.ok("urProgramRelease", made)
    else:
        assert not made.value
    for program, options in ((fresh, None), (compiled, b"-no-such-option")):
        given = "urProgramLink", context, 1, array(program), options, ctypes.byref(made)
        assert ur(*given) == "PROGRAM_LINK_FAILURE"
        if made.value:
            ur.ok("urProgramRelease", made)
    assert ur("urProgramLink", context, 0, array(compiled), None, made) == "INVALID_SIZE"
    given = "urProgramLink", context, 1, array(device.handle), None, ctypes.byref(made)
    assert ur(*given) == "INVALID_PROGRAM"


def test_a_program_is_built_in_its_own_context(
    ur: Calls, context: int, device: PluginDevice
) -> None:
    other = ur.make("urContextCreate", 1, array(device.handle))
    program = program_of(ur, context)
    assert ur("urProgramBuild", other, program) == "INVALID_CONTEXT"


# what it is asked


@pytest.mark.parametrize("name", ["IL", "BINARIES"])
def test_properties_of_unusual_form_keep_to_the_protocol(
    ur: Calls, context: int, name: str
) -> None:
    program, value, size = program_of(ur, context), ctypes.create_string_buffer(8), SIZE()
    asked = program, UR[f"UR_PROGRAM_INFO_{name}"]
    assert ur("urProgramGetInfo", *asked, 0, value) == "INVALID_SIZE"
    assert ur("urProgramGetInfo", *asked, 8) == "INVALID_NULL_POINTER"
    assert ur("urProgramGetInfo", *asked) == "INVALID_NULL_POINTER"
    ur.ok("urProgramGetInfo", *asked, 0, None, ctypes.byref(size))
    assert size.value == (8 if name == "BINARIES" else 0)


def test_what_is_no_binary_is_refused(ur: Calls, context: int, device: PluginDevice) -> None:
    for given in (b"no binary of any driver's", b"", None):
        assert from_binaries(ur, context, device, given)[0] == "INVALID_BINARY"
    assert from_binaries(ur, context, device)[0] == "INVALID_SIZE"


def test_what_is_only_a_part_of_a_binary_is_refused(
    ur: Calls, context: int, device: PluginDevice
) -> None:
    """PoCL would crash."""
    program = built(ur, context)
    (binary,) = binaries(ur, program)
    for end in (1, 8, 16, 64, 100, len(binary) // 2, len(binary) - 1):
        assert from_binaries(ur, context, device, binary[:end])[0] == "INVALID_BINARY", end
    rubbish = (
        bytes(10),
        b"\x7fELF" + bytes(60),
        b"BC\xc0\xde" + bytes(60),
        b"poclbin\0" + bytes(60),
    )
    for given in rubbish:
        assert from_binaries(ur, context, device, given)[0] == "INVALID_BINARY", given


# specialization constants


def constants(*given: tuple[int, int, Any]) -> Any:
    kind = UR.get_struct("ur_specialization_constant_info_t")
    made = (kind * len(given))(
        *(kind(number, size, value and ctypes.addressof(value)) for number, size, value in given)
    )
    made.kept = given
    return made


def test_specialisation_constants(
    ur: Calls, context: int, queue: int, device: PluginDevice
) -> None:
    module, ten = make_store(), ctypes.c_int32(10)
    if not takes_spirv(ur, device):
        program = program_of(ur, context)
        arguments = "urProgramSetSpecializationConstants", program, 1, constants((SPEC_ID, 4, ten))
        assert ur(*arguments) == "UNSUPPORTED_FEATURE"
        ur.ok("urProgramRelease", program)
        return
    source = program_of(ur, context)
    code = ur("urProgramSetSpecializationConstants", source, 1, constants((SPEC_ID, 4, ten)))
    assert code == "INVALID_PROGRAM"
    ur.ok("urProgramRelease", source)
    program = ur.make("urProgramCreateWithIL", context, module, len(module)).value or 0
    for count, given, code in (
        (0, constants((SPEC_ID, 4, ten)), "INVALID_SIZE"),
        (1, None, "INVALID_NULL_POINTER"),
        (1, constants((SPEC_ID, 4, None)), "INVALID_VALUE"),
        (1, constants((SPEC_ID, 8, ten)), "INVALID_VALUE"),
        (1, constants((99, 4, ten)), "INVALID_SPEC_ID"),
        (1, constants((SPEC_ID, 4, ten)), "SUCCESS"),
    ):
        assert ur("urProgramSetSpecializationConstants", program, count, given) == code
    ur.ok("urProgramBuild", context, program)
    runs(ur, context, queue, program, 15, 15)


def test_specialization_constants_that_the_driver_only_pretends_to_have(
    ur: Calls, context: int, device: PluginDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_intel(device):
        pytest.skip("needs a driver that takes SPIR-V: Intel's")
    module, ten = make_store(), ctypes.c_int32(10)
    program = ur.make("urProgramCreateWithIL", context, module, len(module)).value or 0
    table = reference.objects.list_owned("ur_program_handle_t")[program].table
    refuse = OPENCL.codes["CL_INVALID_OPERATION"]
    monkeypatch.setattr(table, "clSetProgramSpecializationConstant", lambda *_: refuse)
    code = ur("urProgramSetSpecializationConstants", program, 1, constants((SPEC_ID, 4, ten)))
    assert code == "UNSUPPORTED_FEATURE"


# native handles


def test_native_handles_that_are_no_programs_of_the_context(
    ur: Calls, context: int, device: PluginDevice
) -> None:
    given = "urContextCreate", 1, array(device.handle), None
    other, made, junk = ur.make(*given), ctypes.c_void_p(), ctypes.create_string_buffer(64)
    program = program_of(ur, context)
    cl = native(ur, "urProgramGetNativeHandle", program)
    for handle, where, code in (
        (0, context, "INVALID_NULL_HANDLE"),
        (64, context, "INVALID_VALUE"),
        (ctypes.addressof(junk), context, "INVALID_VALUE"),
        (cl, other, "INVALID_CONTEXT"),
    ):
        assert ur("urProgramCreateWithNativeHandle", handle, where, None, made) == code
