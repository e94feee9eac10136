"""AMD's compilers, which need no GPU.

AMD names a folder with Debian's packages of HIP and clang, as `make test` fetches them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def amd_root() -> Path:
    """The folder `usr` of the packages."""
    root = Path(os.environ.get("AMD", ""), "usr")
    if next(root.glob("lib/*/libamd_comgr.so.2"), None) is None:
        pytest.skip("AMD names no folder with libamd_comgr: `make test` fetches it on Debian 12")
    return root


@pytest.fixture(scope="session")
def amd(amd_root: Path) -> dict[str, str]:
    """The variables with which AMD's libraries and clang are found."""
    (library,) = amd_root.glob("lib/*/libamd_comgr.so.2")
    return {"LD_LIBRARY_PATH": str(library.parent), "ROCM_PATH": str(amd_root)}


@pytest.fixture(scope="session")
def amd_tools(amd_root: Path) -> Path:
    """The folder with clang and its tools."""
    found = next(amd_root.glob("lib/llvm-*/bin/clang"), None)
    if found is None:
        pytest.skip("the folder that AMD names has no clang: `make test` fetches it on Debian 12")
    return found.parent
