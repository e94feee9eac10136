"""What `make` says in one line when something that README.md names is missing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.support import ROOT


def packages_of_readme() -> set[str]:
    (line,) = re.findall(r"^apt-get install (.+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    return set(line.split())


def required(*arguments: str, commands: Path) -> str:
    """What the check in the Makefile says where only the commands of a folder are."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (code,) = re.findall(r"^define REQUIRE\n(.*?)^endef$", makefile, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={"PATH": str(commands)},
        capture_output=True,
        text=True,
    )
    assert bool(done.returncode) == bool(done.stderr)
    return done.stderr


@pytest.mark.parametrize(
    ("commands", "arguments", "package"),
    [
        ({}, (), "gcc"),
        ({"cc": 1}, (), "libc6-dev"),  # it compiles nothing
        ({"gcc": 1}, (), "libc6-dev"),
        ({"cc": 0}, (), ""),
        ({"cc": 0}, ("test",), "g++"),
        ({"cc": 0, "c++": 0}, ("test",), ""),
        ({"gcc": 0, "g++": 0}, ("test",), ""),
    ],
)
def test_a_missing_package_is_named(
    commands: dict[str, int], arguments: tuple[str, ...], package: str, tmp_path: Path
) -> None:
    for name, code in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / name).chmod(0o755)
    said = required(*arguments, commands=tmp_path)
    assert said.count("\n") == bool(package)
    assert re.findall(r"apt-get install ([^)]+)", said) == ([package] if package else [])
    assert not package or package in packages_of_readme()
