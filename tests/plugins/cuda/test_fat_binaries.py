"""Fat binaries: those of NVIDIA's tool, and those that are put together here by its layout.

FATBINARY may name the tool, which is in the wheel nvidia-cuda-nvcc beside ptxas.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

import pytest
from helpers.launching import last_error

from fairlead.plugins.cuda.device_code import check_fat_binary, split_fat_binary
from fairlead.plugins.sdk.gpu.device_code import DeviceCodeError

from .conftest import COUNT, Work, only_cuda
from .test_adapter import PTX, cubin_of, program_of_binary

_PTX_KIND, _CUBIN_KIND = 1, 2
#: Another architecture than that of any device that these tests run on.
OTHER: Final = 75


def _by_hand(*parts: tuple[int, int, bytes]) -> bytes:
    """Return a fat binary of kinds, architectures and contents. PTX has no options."""
    body = b""
    for kind, architecture, contents in parts:
        is_ptx = kind == _PTX_KIND
        contents += b"\0" * is_ptx
        padded = contents.ljust(-(-len(contents) // 8) * 8, b"\0")
        version, place = (0x80000, 64) if is_ptx else (0x10008, 0)
        options = struct.pack("<IIQ", 72, 0, 0) * is_ptx
        rest = 0, place, version, architecture, 0, 0, 0x11, 0, 0, 0, 0, 0
        head = struct.pack("<HHIQ12I", kind, 0x101, 64 + len(options), len(padded), *rest)
        body += head + options + padded
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def _by_tool(folder: Path, *parts: tuple[int, int, bytes]) -> bytes:
    """Return the same, made by NVIDIA's tool."""
    tool = os.environ.get("FATBINARY") or shutil.which("fatbinary")
    if not tool:
        pytest.skip("needs fatbinary: pip install nvidia-cuda-nvcc, or FATBINARY=PATH")
    command, made = [tool, "-64", "--compress=false"], folder / "all.fatbin"
    for number, (kind, architecture, contents) in enumerate(parts):
        path = folder / f"part{number}"
        path.write_bytes(contents)
        name = "ptx" if kind == _PTX_KIND else "elf"
        command.append(f"--image3=kind={name},sm={architecture},file={path}")
    done = subprocess.run([*command, f"--create={made}"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return made.read_bytes()


def _device(work: Work) -> int:
    version = work.ur.info("urDeviceGetInfo", work.device, "UR_DEVICE_INFO_VERSION")
    return int(version.rstrip(b"\0").decode().replace(".", ""))


def _scale(work: Work, data: bytes) -> list[int]:
    """Return what the kernel of a binary makes of 0, 1, 2 and so on."""
    program = program_of_binary(work, data)
    work.ur.ok("urProgramBuild", work.context, program)
    kernel = work.ur.make("urKernelCreate", program, b"scale").value or 0
    out = work.memory()
    work.put(out, struct.pack(f"{COUNT}i", *range(COUNT)))
    work.launch(kernel, out, ctypes.c_int32(3), ctypes.c_int32(1))
    return work.numbers(out)


EXPECTED: Final = [3 * number + 1 for number in range(COUNT)]


@only_cuda
@pytest.mark.parametrize("made", ["by hand", "by the tool"])
@pytest.mark.parametrize("form", ["cubin", "ptx"])
def test_the_driver_takes_the_part_for_the_device(
    work: Work, made: str, form: str, tmp_path: Path
) -> None:
    """The part of the other architecture has another kernel, so it would not do."""
    other = cubin_of(work, PTX.replace(b"scale", b"other"), tmp_path, OTHER)
    fits = PTX if form == "ptx" else cubin_of(work, PTX, tmp_path)
    kind, architecture = (_PTX_KIND, 50) if form == "ptx" else (_CUBIN_KIND, _device(work))
    parts = (_CUBIN_KIND, OTHER, other), (kind, architecture, fits)
    data = _by_hand(*parts) if made == "by hand" else _by_tool(tmp_path, *parts)
    found = [(one.kind, one.architecture) for one in split_fat_binary(data)]
    assert found == [(_CUBIN_KIND, OTHER), (kind, architecture)]
    assert _scale(work, data) == EXPECTED


@only_cuda
def test_the_layout_is_that_of_nvidias_tool(work: Work, tmp_path: Path) -> None:
    cubins = [
        (_CUBIN_KIND, architecture, cubin_of(work, PTX, tmp_path, architecture))
        for architecture in (OTHER, 90)
    ]
    # the tool deletes spaces of PTX
    text = b"\n".join(line.strip() for line in PTX.splitlines()) + b"\n"
    parts = [*cubins, (_PTX_KIND, 50, text)]
    assert _by_hand(*parts) == _by_tool(tmp_path, *parts)


@only_cuda
def test_a_fat_binary_without_code_for_the_device_says_what_it_has(
    work: Work, tmp_path: Path
) -> None:
    parts = (_CUBIN_KIND, OTHER, cubin_of(work, PTX, tmp_path, OTHER)), (_PTX_KIND, 999, PTX)
    program = program_of_binary(work, _by_hand(*parts))
    assert work.ur("urProgramBuild", work.context, program) == "PROGRAM_BUILD_FAILURE"
    said = f"has sm_75, compute_999, and the device needs code for sm_{_device(work)}"
    assert said in last_error(work.ur)[0]


@only_cuda
def test_a_damaged_fat_binary_does_not_reach_the_driver(work: Work, tmp_path: Path) -> None:
    whole = _by_hand((_CUBIN_KIND, 90, cubin_of(work, PTX, tmp_path, 90)))
    for data in (whole[:8], whole[:40], whole[:-8], whole[:20] + b"\0\0\0\0" + whole[24:]):
        program = program_of_binary(work, data)
        assert work.ur("urProgramBuild", work.context, program) == "PROGRAM_BUILD_FAILURE"
        assert "the fat binary is damaged" in last_error(work.ur)[0]


def test_ptx_that_would_lead_the_driver_elsewhere_is_damaged() -> None:
    whole, head = bytearray(_by_hand((_PTX_KIND, 50, PTX))), 16
    assert split_fat_binary(bytes(whole)) == [(_PTX_KIND, 50)]
    for place, value in ((20, 0), (20, 76), (64, 1 << 24), (68, 9)):
        data = bytearray(whole)
        struct.pack_into("<I", data, head + place, value)
        with pytest.raises(DeviceCodeError, match="the fat binary is damaged"):
            split_fat_binary(bytes(data))
    whole[-1] = 32
    with pytest.raises(DeviceCodeError, match="PTX has no end"):
        split_fat_binary(bytes(whole))


@pytest.mark.parametrize(
    ("parts", "device", "fits"),
    [
        ([(_CUBIN_KIND, 80)], 86, True),
        ([(_CUBIN_KIND, 89)], 86, False),
        ([(_CUBIN_KIND, 80)], 90, False),
        ([(_PTX_KIND, 80)], 90, True),
        ([(_PTX_KIND, 100)], 90, False),
        ([(64, 100)], 90, True),
        ([], 90, False),
    ],
)
def test_which_part_may_be_for_a_device(
    parts: list[tuple[int, int]], device: int, fits: bool
) -> None:
    """What is neither PTX nor a cubin is left to the driver."""
    data = _by_hand(*((*one, b"contents") for one in parts))
    if fits:
        check_fat_binary(data, device)
    else:
        with pytest.raises(DeviceCodeError, match=f"needs code for sm_{device}"):
            check_fat_binary(data, device)
