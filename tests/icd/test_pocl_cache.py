"""What fairlead reads of PoCL's kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.icd import pocl_kernels
from fairlead.icd.pocl_kernels import PoclKernel


def test_without_a_home_pocl_s_cache_is_not_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files run in this process, and others may have written what lies here."""
    planted = tmp_path / ".cache/pocl/kcache/folder/4-1-1/step.so"
    planted.parent.mkdir(parents=True)
    planted.write_bytes(b"code")
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CACHE_HOME", "POCL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    taken: list[bytes] = []
    monkeypatch.setattr(pocl_kernels, "is_whole_library", lambda library: True)
    monkeypatch.setattr(PoclKernel, "_find_function", lambda _, data: taken.append(data) or 1)
    kernel = PoclKernel("step", (), (), (), (0, 0, 0), False, b"", "folder", None)
    assert kernel.find_specialized((4, 1, 1), no_offset=False, small_grid=False) == 0
    assert not taken
    monkeypatch.setenv("HOME", str(tmp_path))
    assert kernel.find_specialized((4, 1, 1), no_offset=False, small_grid=False) == 1
    assert taken == [b"code"]
