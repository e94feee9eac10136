"""What the fresh systems of `make test-pristine` are given of this machine. (The run itself needs
root and a network.)

The copy of the sources that wheels are built from, and fresh systems are given.
"""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest
from helpers import pristine
from helpers.sources import copy_sources
from helpers.support import ROOT


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        ("https://pypi.example/simple", []),
        ("/etc/ssl/certs/all.crt", ["/etc/ssl/certs/all.crt"]),
        ("file:///srv/a%20b/simple https://x.example /srv/wheels", ["/srv/a b", "/srv/wheels"]),
        ("180", []),
    ],
)
def test_files_that_an_option_names_are_seen(value: str, paths: list[str]) -> None:
    assert [str(path) for path in pristine.local_paths(value)] == paths


def test_the_configuration_of_pip_and_proxies_is_handed_on_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, config = tmp_path / "index/simple", tmp_path / "pip.conf"
    index.mkdir(parents=True)
    config.write_text(f"[global]\nextra-index-url =\n  file://{index}\n  https://pypi.example\n")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_RETRIES", "7")
    monkeypatch.setenv("https_proxy", "http://proxy.example")
    monkeypatch.setenv("PIP_TARGET", str(tmp_path))
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path))
    variables, paths = pristine.access()
    assert variables["PIP_EXTRA_INDEX_URL"] == f"file://{index} https://pypi.example"
    assert (variables["PIP_RETRIES"], variables["https_proxy"]) == ("7", "http://proxy.example")
    assert not {"PIP_TARGET", "PIP_CACHE_DIR", "PIP_CONFIG_FILE", "PATH"} & set(variables)
    assert index.parent in paths and tmp_path not in paths


def test_exactly_the_packages_of_the_readme_are_installed() -> None:
    *command, rest = pristine.packages().split(" gcc ")
    assert command == ["apt-get install -q -y --no-install-recommends"]
    assert rest.split() == ["g++", "libc6-dev", "make", "python3-dev", "python3-venv"]


@pytest.mark.parametrize(
    ("user", "release", "commands", "said"),
    [
        (1000, "sid", {"debootstrap", "unshare"}, "no root"),
        (0, "potato", {"debootstrap", "unshare"}, "RELEASE=potato is unknown"),
        (0, "sid", {"unshare"}, "apt-get install debootstrap"),
        (0, "noble", {"debootstrap"}, "apt-get install util-linux"),
        (0, "bookworm", {"debootstrap", "unshare"}, ""),
    ],
)
def test_what_is_missing_is_named(
    user: int, release: str, commands: set[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pristine.os, "geteuid", lambda: user)
    monkeypatch.setattr(pristine.shutil, "which", lambda name: name if name in commands else None)
    with pytest.raises(SystemExit, match=said) if said else nullcontext():
        pristine.require(release)


def test_the_direct_engine_is_tested_on_the_pocl_of_each_release() -> None:
    own = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "TESTS", "RELEASE", "POCL")  # of `make test`
    env = {name: value for name, value in os.environ.items() if name not in own}
    command = ["make", "-n", "-C", str(ROOT), "test-pocl"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    calls = re.findall(r"^RELEASE='(\w+)' TESTS='([^']+)' POCL='1'", done.stdout, re.MULTILINE)
    assert {"bookworm", "trixie", "noble", "sid"} == {release for release, _ in calls}
    assert {release for release, _ in calls} <= set(pristine.RELEASES)
    for pattern in calls[0][1].split():
        assert list(ROOT.glob(pattern)), pattern


#: What a tree holds, and what of it is copied.
TREE = {
    "README.md": True,
    "setup.py": True,
    "icd/native/replay.c": True,
    "docs/build/page.md": True,
    ".git/config": False,
    ".venv/bin/python": False,
    "build/lib/fairlead/api.py": False,
    "icd/_native.abi3.so": False,
    "fairlead/__pycache__/api.pyc": False,
    "plugins/libur_adapter_x.so.0": False,
    "fairlead.egg-info/PKG-INFO": False,
}


# in a second working tree of a repository, .git is a file
@pytest.mark.parametrize("git", ["folder", "file"])
def test_what_was_built_is_not_copied_and_git_is_not_asked(
    git: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    source = tmp_path / "source"
    expected = set()
    for name, copied in TREE.items():
        if git == "file" and name.startswith(".git/"):
            name = ".git"
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).touch()
        expected |= {name} if copied else set()
    (source / ".gitignore").write_bytes((ROOT / ".gitignore").read_bytes())
    copy_sources(source, tmp_path / "copy")
    found = {
        str(path.relative_to(tmp_path / "copy"))
        for path in (tmp_path / "copy").rglob("*")
        if path.is_file()
    }
    assert found == expected | {".gitignore"}
