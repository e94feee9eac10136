"""The cache: which folders and files are believed, and how new ones are made."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlead.loader.base import own_files
from fairlead.loader.base.fact_cache import FactCache
from fairlead.loader.base.own_files import OwnFolder, why_no_cache

FOLDER = OwnFolder("below")


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a/b"))
    return tmp_path / "a/b"


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: str | Path) -> int:
    return os.stat(path).st_mode & 0o777


@pytest.mark.parametrize("mask", [0, 0o022, 0o277])
def test_files_and_folders_are_for_their_user_alone(base: Path, mask: int) -> None:
    FOLDER.replace("first", b"")  # the folders; a mask without w would forbid files in them
    with umask(mask):
        FOLDER.replace("file", b"data")
    assert mode(Path(FOLDER.get_path()) / "file") == 0o600
    assert FOLDER.read("file") == b"data" and FOLDER.list() == ["file", "first"]
    assert [mode(folder) for folder in (base, base / "fairlead", FOLDER.get_path())] == [0o700] * 3


def test_folders_are_made_for_their_user_alone_without_a_umask(base: Path) -> None:
    with umask(0):
        FOLDER.replace("file", b"")
    made = (base.parent, base, base / "fairlead", FOLDER.get_path())
    assert [mode(folder) for folder in made] == [0o700] * 4


def test_an_earlier_folder_gets_the_mode(base: Path) -> None:
    FOLDER.replace("file", b"data")
    os.chmod(FOLDER.get_path(), 0o777)
    assert FOLDER.read("file") == b"data" and mode(FOLDER.get_path()) == 0o700


def be_writable(file: Path) -> None:
    file.chmod(0o620)


def be_a_link(file: Path) -> None:
    file.rename(file.with_name("real"))
    file.symlink_to("real")


def be_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def be_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("forge", [be_writable, be_a_link, be_a_pipe, be_a_folder])
def test_what_others_can_have_written_is_not_believed(forge: Callable[[Path], None]) -> None:
    FOLDER.replace("file", b"data")
    forge(Path(FOLDER.get_path()) / "file")
    with pytest.raises(OSError):
        FOLDER.read("file")
    if forge is not be_a_folder:
        FOLDER.replace("file", b"new")
        assert FOLDER.read("file") == b"new"


def test_a_link_is_never_written_through(tmp_path: Path) -> None:
    FOLDER.replace("file", b"")
    (tmp_path / "precious").write_text("kept", encoding="utf-8")
    be_a_link(Path(FOLDER.get_path()) / "file")
    (Path(FOLDER.get_path()) / "real").unlink()
    (Path(FOLDER.get_path()) / "real").symlink_to(tmp_path / "precious")
    FOLDER.replace("file", b"data")
    assert (tmp_path / "precious").read_text(encoding="utf-8") == "kept"
    assert FOLDER.list() == ["file", "real"]


@pytest.mark.parametrize("name", ["fairlead", "fairlead/below"])
def test_a_folder_that_is_a_link_is_not_used(base: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (base / name).parent.mkdir(parents=True)
    (base / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        FOLDER.replace("file", b"data")
    assert not list((tmp_path / "elsewhere").iterdir())
    facts = FactCache("facts.json")
    facts.add({"one": {"at": 1.0}})
    assert bool(facts.read()) == (name != "fairlead")


def test_files_and_folders_of_others_are_not_used(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FOLDER.replace("file", b"data")
    monkeypatch.setattr(own_files.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError, match="another user"):
        FOLDER.read("file")
    with pytest.raises(PermissionError, match="another user"):
        FOLDER.replace("file", b"data")
    assert why_no_cache() == (str(base / "fairlead"), "it belongs to another user")


@pytest.mark.parametrize("by", ["HOME", "XDG_CACHE_HOME"])
def test_root_keeps_nothing_in_the_home_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    if os.geteuid() == 0:
        os.chown(tmp_path, 12345, 12345)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv(by, str(tmp_path / "new" if by == "XDG_CACHE_HOME" else tmp_path))
    monkeypatch.setattr(own_files.os, "geteuid", lambda: 0)
    with pytest.raises(PermissionError, match="root's"):
        FOLDER.replace("file", b"data")
    assert not list(tmp_path.iterdir()) and why_no_cache()


def test_what_is_no_absolute_path_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache-of-nobody")
    with pytest.raises(PermissionError, match="absolute"):
        FOLDER.replace("file", b"")
    assert not Path("cache-of-nobody").exists()


def test_a_process_with_more_rights_than_its_user_has_none(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_files, "is_secure_process", lambda: True)
    with pytest.raises(PermissionError, match="more rights"):
        FOLDER.replace("file", b"")
    assert not base.exists()
