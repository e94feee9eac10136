"""HIP's driver without a GPU, in two profiles: the files of tests/fake/cuda under HIP's names.

`_forwards` makes those functions of HIP that differ from CUDA's in the name only. The others are in
tests/fake/hip.
"""

from __future__ import annotations

import re
import runpy
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from fairlead.loader.base.abi import Function
from fairlead.loader.cuda.abi import CUDA
from fairlead.loader.cuda.abi import NAMES as CUDA_NAMES
from fairlead.loader.hip.abi import CONSTANTS, HIP, NAMES
from fairlead.loader.hip.driver import HipDriver
from helpers.cuda import FakeGpu, compile_fake_gpu, prototypes
from helpers.support import ROOT

#: The profiles: their names, the newest HIP whose functions they have, and their file names.
PROFILES: Final = {"5.2": ((5, 2), "libamdhip64.so.5"), "6.4": ((6, 4), "libamdhip64.so.6")}
_FOLDER: Final = ROOT / "tests/fake/hip"
_CUDA_OF: Final = {ours: CUDA_NAMES[name] for name, ours in NAMES.items()}


def _defined(folder: Path, returns: str) -> set[str]:
    """Return the functions that C files define."""
    texts = (path.read_text(encoding="utf-8") for path in folder.glob("*.c"))
    return {name for text in texts for name in re.findall(rf"^{returns} (\w+)\(", text, re.M)}


def _forward(function: Function) -> Iterator[str]:
    other = CUDA.functions[_CUDA_OF[function.name]]
    assert len(other.parameters) == len(function.parameters), function.name
    pairs = zip(function.parameters, other.parameters, strict=True)
    arguments = ", ".join(f"({theirs.c_type}){ours.name}" for ours, theirs in pairs)
    yield f"{function.format_c_declaration(function.name)} {{"
    yield f"    HIP_BEGIN;\n    return hip_end({other.name}({arguments}));\n}}"


def _forwards(version: tuple[int, int]) -> Iterator[str]:
    """Yield C: the functions of a version that call CUDA's, where the fakes define none."""
    here, cuda = _defined(_FOLDER, "hipError_t"), _defined(ROOT / "tests/fake/cuda", "CUresult")
    yield '#include "fake_hip.h"'
    for function in HIP.slots:
        is_here = function.since <= version and function.name not in here
        if is_here and _CUDA_OF[function.name] in cuda:
            yield from _forward(function)


def _attributes() -> str:
    """Return C: pairs of HIP's and CUDA's numbers of attributes."""
    pairs = (
        f"{{{ours}, {theirs}}}"
        for theirs, ours in CONSTANTS.items()
        if theirs.startswith("CU_DEVICE_ATTRIBUTE_")
    )
    return f"#define HIP_ATTRIBUTES {', '.join(pairs)}\n"


def build_fake_hip(folder: Path, profile: str) -> Path:
    """Compile the fake driver in a folder. AMD's compiler library is the same file.

    Args:
        folder: where it is written.
        profile: a key of PROFILES.
    """
    version, file_name = PROFILES[profile]
    build = runpy.run_path(str(ROOT / "icd/native/build.py"))
    texts = {
        "hip_abi.h": build["emit_table_header"]("hip") + _attributes(),
        "hip_functions.h": prototypes(HIP),
        "forwards.c": "\n".join([*_forwards(version), ""]),
        "exports": "{ global: hip*; _Z2?hip*; fake_*; amd_comgr_*; local: *; };",
    }
    (folder / "libamd_comgr.so.2").symlink_to(file_name)
    return compile_fake_gpu(
        folder / file_name,
        texts,
        [*sorted(_FOLDER.glob("*.c")), folder / "forwards.c"],
        f"-I{_FOLDER}",
        f"-DFAKE_HIP={version[0] * 100 + version[1]}",
        f"-Wl,--version-script={folder / 'exports'}",
    )


class FakeHip(FakeGpu):
    """The fake driver in a profile: its library, opened by fairlead and for its knobs."""

    def __init__(self, path: Path, driver: HipDriver, profile: str) -> None:
        super().__init__(path)
        self.driver, self.profile = driver, profile


@pytest.fixture(scope="session", params=PROFILES)
def hip_profile(request: pytest.FixtureRequest) -> str:
    """A profile of HIP: "5.2" and "6.4"."""
    return request.param


@pytest.fixture(scope="session")
def fake_hip_paths(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The fake driver's file by its profile, compiled when it is first asked for."""
    return cache(lambda profile: build_fake_hip(tmp_path_factory.mktemp("hip"), profile))


@pytest.fixture(scope="session")
def fake_hip_path(hip_profile: str, fake_hip_paths: Callable[[str], Path]) -> Path:
    """The fake driver's file, in a profile."""
    return fake_hip_paths(hip_profile)


@pytest.fixture(scope="session")
def fake_hip_driver(fake_hip_path: Path) -> HipDriver:
    """The fake driver, opened once: a process can trace 16 tables."""
    return HipDriver.open(str(fake_hip_path))


@pytest.fixture
def fake_hip(
    hip_profile: str, fake_hip_path: Path, fake_hip_driver: HipDriver
) -> Iterator[FakeHip]:
    """The fake driver, open in this process."""
    found = FakeHip(fake_hip_path, fake_hip_driver, hip_profile)
    yield found
    for function in HIP.functions:
        found.fail(function, 0)
    found.driver.table.hipSetDevice(0)
    found.driver.table.hipGetLastError()


def bundle(**parts: bytes) -> bytes:
    """Return a bundle of code objects by their targets."""
    heads, at = [], 24 + 8 + sum(24 + len(name) for name in parts)
    for name, data in parts.items():
        heads.append(struct.pack("<3Q", at, len(data), len(name)) + name.encode())
        at += len(data)
    count = struct.pack("<Q", len(parts))
    return b"".join([b"__CLANG_OFFLOAD_BUNDLE__", count, *heads, *parts.values()])
