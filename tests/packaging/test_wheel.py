"""The wheel installs `fairlead` and nothing else, and works without the repository."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support import ROOT


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=280, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of what git tracks, so that nothing that lies about here gets into it."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    names = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    for name in filter(None, names):
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(target), str(source))
    return next(target.glob("fairlead-*.whl"))


def test_the_wheel_holds_fairlead_alone(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"fairlead"}
    for needed in ("fairlead/py.typed", "fairlead/icd/opencl.abi", "fairlead/vendors_d/pocl-binary-distribution.icd"):
        assert needed in names
    assert "fairlead/icd/libfairlead_trace.so" in names, "a library for OpenCL loaders, of any version of Python"
    assert any(name.startswith("fairlead/icd/_native") and name.endswith(".so") for name in names)
    assert not [name for name in names if "test" in name or name.endswith(".c")]


def test_the_installed_wheel_finds_drivers(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), str(wheel))
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import fairlead; assert fairlead.__file__.startswith({str(tmp_path)!r}); "
        "print([p.version for p in fairlead.platforms()])"
    )
    assert "PoCL 3.0-rc2" in run(sys.executable, "-c", code, cwd=tmp_path)
