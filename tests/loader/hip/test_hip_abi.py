"""hip.abi against hip_runtime_api.h of Debian's libamdhip64-dev, and its names of CUDA's things.

HIP_HEADERS is a list of folders, with colons between them: one for each version of HIP.
"""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from helpers.abi_header import compile_lines, function_lines, struct_lines, type_lines, value_lines

from fairlead.loader.cuda.abi import CUDA
from fairlead.loader.cuda.abi import NAMES as CUDA_NAMES
from fairlead.loader.hip.abi import (
    CONSTANTS,
    HIP,
    MISSING,
    NAMES,
    OLDER,
    find_name,
)
from fairlead.loader.hip.driver import CXX_SYMBOLS

_TYPES = {"hip_flags64": "unsigned long long", "hipDeviceProp_t_5": "hipDeviceProp_t"}
_FOLDERS = [path for path in os.environ.get("HIP_HEADERS", "").split(":") if path]
#: What the header of HIP 5.2 has not, and later ones have.
_NEW = {
    "hipDeviceAttributeHostRegisterSupported",
    "hipDeviceAttributeVirtualMemoryManagementSupported",
    "hipErrorInvalidChannelDescriptor",
    "hipErrorInvalidTexture",
    "hipGraphEdgeData",
    "hipMemoryTypeManaged",
}


class Header:
    """A header: its folder, its words, and its version."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = ("hip_runtime_api.h", "driver_types.h", "hip_version.h")
        text = "".join((folder / "hip" / name).read_text(errors="replace") for name in names)
        self.words = frozenset(re.findall(r"\w+", text))
        major, minor = (
            int(re.findall(rf"define HIP_VERSION_{part} +(\d+)", text)[0])
            for part in ("MAJOR", "MINOR")
        )
        self.version = major, minor

    def compile(self, lines: list[str], tmp_path: Path) -> None:
        """Compile assertions after it."""
        options = f"-I{self.folder}", "-D__HIP_PLATFORM_AMD__"
        compile_lines(lines, tmp_path, ["hip/hip_runtime_api.h"], *options)

    def has(self, name: str) -> bool:
        """Whether it has a name. If not, the name is one of `_NEW`."""
        found = name in self.words
        assert found or name in _NEW, f"HIP {self.version} has no {name}"
        return found

    def own(self, names: list[str]) -> dict[str, str]:
        """Its names of structs or constants, to their names in hip.abi."""
        plain = [name for name in names if not name.endswith(tuple(OLDER))]
        return {name: find_name(name, self.version) for name in plain if self.has(name)}


@pytest.fixture(params=_FOLDERS or [""], ids=range(len(_FOLDERS) or 1))
def header(request: pytest.FixtureRequest) -> Header:
    """A header, of each version that is here."""
    folder = Path(request.param)
    if not (folder / "hip/hip_runtime_api.h").exists():
        pytest.skip("HIP_HEADERS names no headers: `make test` fetches them where apt-get is")
    return Header(folder)


def test_every_function_is_that_of_the_header(header: Header, tmp_path: Path) -> None:
    functions = [one for one in HIP.slots if one.since <= header.version]
    header.compile(list(function_lines(functions, _TYPES)), tmp_path)


def test_every_struct_type_and_constant_is_that_of_the_header(
    header: Header, tmp_path: Path
) -> None:
    structs = {ours: name for name, ours in header.own(list(HIP.structs)).items()}
    values = {
        name: HIP[ours] if ours in HIP.constants else HIP.codes[ours]
        for name, ours in header.own([*HIP.constants, *HIP.codes]).items()
    }
    assert len(values) > 100 and len(structs) >= 15
    lines = [
        *struct_lines(HIP, structs, lambda name: structs[name]),
        *type_lines(HIP, HIP.types, _TYPES),
        *value_lines(values),
    ]
    header.compile(lines, tmp_path)


def test_layouts_of_versions() -> None:
    assert HIP[find_name("hipMemoryTypeDevice", (6, 0))] == 2
    assert HIP[find_name("hipMemoryTypeDevice", (5, 7))] == 1
    assert find_name("HIP_MEMCPY3D", (5, 7)) == "HIP_MEMCPY3D_5"
    assert find_name("HIP_MEMCPY3D", (7, 0)) == "HIP_MEMCPY3D"
    assert find_name("hipMemAllocationProp", (5, 2)) == "hipMemAllocationProp_52"
    assert find_name("hipMemAllocationProp", (5, 5)) == "hipMemAllocationProp"
    assert find_name("hipMemsetParams", (5, 2)) == "hipMemsetParams"


def test_every_function_of_cuda_has_a_name_or_is_missing() -> None:
    assert set(NAMES) == set(CUDA_NAMES) - MISSING and set(CUDA_NAMES) >= MISSING
    assert set(NAMES.values()) <= set(HIP.functions)
    assert NAMES["MemAlloc"] == "hipMalloc" and NAMES["GraphLaunch"] == "hipGraphLaunch"


def test_constants_of_cuda_have_names() -> None:
    lacking = {name for name in CUDA.constants if name not in CONSTANTS}
    engine = "CU_GRAPH_", "CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR"
    images = "CU_AD_", "CU_TR", "CU_RESOURCE_", "CUDA_ARRAY3D_", "CU_DEVICE_ATTRIBUTE_MAXIMUM_"
    assert {name for name in lacking if not name.startswith(("CU_JIT_", *engine, *images))} == {
        "CU_MEM_LOCATION_TYPE_HOST",
        "CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH",
        "CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED",
        "CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED",
        "CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS",
        "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION",
        "CU_LAUNCH_ATTRIBUTE_COOPERATIVE",
        "CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED",
    }
    numbers = {name: HIP[CONSTANTS[f"CU_DEVICE_ATTRIBUTE_{name}"]] for name in ("WARP_SIZE",)}
    assert numbers == {"WARP_SIZE": 87}
    assert HIP[CONSTANTS["CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED"]] == 1


def test_structs_of_images_are_those_of_cuda() -> None:
    """The adapter gives HIP CUDA's. The one for surfaces is shorter and begins like it."""
    for ours, theirs in (
        ("HIP_ARRAY3D_DESCRIPTOR", "CUDA_ARRAY3D_DESCRIPTOR"),
        ("HIP_RESOURCE_DESC", "CUDA_RESOURCE_DESC"),
        ("HIP_TEXTURE_DESC", "CUDA_TEXTURE_DESC"),
    ):
        both = [api.get_struct(name) for api, name in ((HIP, ours), (CUDA, theirs))]
        places = [
            [(name, getattr(one, name).offset, getattr(one, name).size) for name, _ in one._fields_]
            for one in both
        ]
        assert places[0] == places[1] and len(set(map(ctypes.sizeof, both))) == 1
    surface, texture = HIP.get_struct("hipResourceDesc"), HIP.get_struct("HIP_RESOURCE_DESC")
    assert (surface.resType.offset, surface.res.offset) == (0, texture.res.offset)


def test_surfaces_of_debians_hip_are_under_names_of_cxx() -> None:
    """libamdhip64.so.5 of Debian 12 exports all functions of images, these two for C++ alone."""
    library = next(Path(os.environ.get("AMD", "")).glob("usr/lib/*/libamdhip64.so.5"), None)
    if library is None:
        pytest.skip("AMD names no folder with libamdhip64: `make test` fetches it on Debian 12")
    with library.open("rb") as file:
        table: Any = ELFFile(file).get_section_by_name(".dynsym")
        names = {one.name for one in table.iter_symbols() if one["st_shndx"] != "SHN_UNDEF"}
    assert {*CXX_SYMBOLS.values()} < names and not names & CXX_SYMBOLS.keys()
    assert {"hipArray3DCreate", "hipArrayDestroy", "hipTexObjectCreate"} < names
    assert "hipArray3DGetDescriptor" not in names


def test_codes_are_those_of_cuda() -> None:
    """The adapter takes them for CUDA's, but for 912. Of 98 and 911 CUDA has other errors."""
    common = {
        code: (CUDA.errors[code][0], HIP.errors[code][0])
        for code in CUDA.errors
        if code in HIP.errors
    }
    assert common[2] == ("CUDA_ERROR_OUT_OF_MEMORY", "hipErrorMemoryAllocation")
    assert common[700] == ("CUDA_ERROR_ILLEGAL_ADDRESS", "hipErrorIllegalAddress")
    assert not {98, 911, 916, 1052, 1053} & set(common) and len(common) > 35
