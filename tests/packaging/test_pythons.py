"""What runs on every Python (tests/helpers/pythons.py): which Pythons are found, what is copied,
and what is said of each.

What tests keep of PoCL's cache between runs: programs with a damaged file are removed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import pythons
from helpers.kept_files import remove_damaged_kernels

from fairlead.icd import libopencl

MAKEFILE = """
demo:
	@mkdir -p .venv && echo $(PYTHON) >> built
test:
	@test -n "$(TESTS)" && echo "3 passed in 0.1s" || { echo "1 failed, 2 passed in 0.1s"; exit 1; }
clean:
	@echo clean >> built
"""


def fake_python(path: Path, version: str) -> Path:
    """A command that answers as a Python of a version does; one that fails if the version is ""."""
    path.parent.mkdir(parents=True, exist_ok=True)
    answer = f"echo {path}; echo {version}" if version else "echo no such version >&2; exit 127"
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small tree in place of fairlead's."""
    root = tmp_path / "tree"
    (root / "build" / "pythons").mkdir(parents=True)
    (root / "Makefile").write_text(MAKEFILE)
    (root / ".gitignore").write_text("/build/\n/.venv/\nbuilt\n")
    monkeypatch.setattr(pythons, "ROOT", root)
    monkeypatch.setattr(pythons, "FOLDER", root / "build" / "pythons")
    return root


def test_the_promised_versions_are_those_of_setup_cfg() -> None:
    assert pythons.promised()[0] == "3.10" and pythons.promised()[-1] == "3.15"


def test_a_command_on_the_path_that_starts_nothing_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_python(tmp_path / "shims" / "python3.12", "")
    wanted = fake_python(tmp_path / "bin" / "python3.12", "3.12.1")
    monkeypatch.setenv("PATH", os.pathsep.join([f"{tmp_path}/shims", f"{tmp_path}/bin"]))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert pythons.find("3.12") == (str(wanted), "3.12.1")
    assert pythons.find("3.13") is None


def test_of_pyenv_s_the_newest_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("3.10.9", "3.10.13", "3.1.20"):
        fake_python(tmp_path / "versions" / version / "bin" / "python", version)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    found = pythons.find("3.10")
    assert found is not None and (found.version, found.release) == ("3.10.13", "3.10")


def test_a_python_that_is_named_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"ensurepip: .*/gone"):
        pythons.wanted([str(tmp_path / "gone")])
    (found,) = pythons.wanted([sys.executable])
    assert found.release == f"{sys.version_info.major}.{sys.version_info.minor}"


def test_a_copy_follows_the_tree_and_keeps_what_was_built(tree: Path) -> None:
    copy = tree / "build" / "pythons" / "3.10"
    (tree / "old.py").touch()
    (tree / "changed.c").write_text("1")
    (tree / "link").symlink_to("old.py")
    pythons.copy_tree(copy)
    (copy / "built").touch()
    for name in ("Makefile", "changed.c"):
        os.utime(copy / name, (1, 1))
    (tree / "old.py").rename(tree / "new.py")
    (tree / "changed.c").write_text("2")
    os.utime(tree / "changed.c", (1, 1))  # before something was built of its former text
    (tree / "link").unlink()
    (tree / "link").symlink_to("new.py")
    pythons.copy_tree(copy)
    found = {path.name for path in copy.iterdir()}
    assert found == {"Makefile", ".gitignore", "new.py", "changed.c", "link", "built"}
    assert (copy / "link").readlink() == Path("new.py")
    assert (copy / "changed.c").read_text() == "2"
    assert (copy / "changed.c").stat().st_mtime > 1, "make has to see that it changed"
    assert (copy / "Makefile").stat().st_mtime == 1, "and that this did not"


def test_each_python_has_a_line_and_one_that_fails_is_the_end(
    tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAKEFLAGS", "-- TESTS=of_the_make_that_runs_this")
    both = [pythons.Python("/one", "3.10.13"), pythons.Python("/two", "3.12.1")]
    assert pythons.on_each(
        "suite", both, lambda python, log: pythons.suite(python, log, "tests/some")
    )
    printed = capsys.readouterr().out
    assert printed == "Python 3.10.13: 3 passed in 0.1s\nPython 3.12.1: 3 passed in 0.1s\n"
    assert not pythons.on_each(
        "suite", both[:1], lambda python, log: pythons.suite(python, log, "")
    )
    printed = capsys.readouterr().out
    assert printed.startswith("Python 3.10.13: FAILED: 1 failed, 2 passed in 0.1s; exit code 2")
    assert printed.count("\n") == 1
    assert (tree / "build/pythons/3.10/built").read_text() == "clean\n/one\n/one\n"


def test_another_python_of_a_version_does_not_use_what_the_first_has_built(tree: Path) -> None:
    for path in ("/one", "/two"):
        log = tree / "build" / "pythons" / "log"
        pythons.suite(pythons.Python(path, "3.10.13"), log, "tests/some")
    assert (tree / "build/pythons/3.10/built").read_text() == "clean\n/one\nclean\n/two\n"


@pytest.mark.parametrize(
    ("text", "code", "out"), [("x = 1", 0, "2 modules\n"), ("import not_there", 1, "")]
)
def test_a_module_that_cannot_be_imported_is_found(
    tmp_path: Path, text: str, code: int, out: str
) -> None:
    package = tmp_path / "fairlead"
    (package / "sub").mkdir(parents=True)
    for name in ("__init__.py", "__main__.py", "sub/__init__.py", "liblayer.so"):
        (package / name).touch()
    (package / "__main__.py").write_text("raise SystemExit('it was run')")
    (package / "sub" / "module.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", pythons._IMPORT], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (code, out)


LIBRARY = Path(libopencl.find_library()).read_bytes()
BITCODE = b"BC\xc0\xde\x35\x14\0\0"


def program(folder: Path, name: str, files: dict[str, bytes]) -> Path:
    """A program as PoCL keeps it, with these files beside those that each has."""
    made = folder / "AB" / name
    files = {"program.bc": BITCODE, "k/0-0-0/k.so": LIBRARY, **files}
    for path, data in files.items():
        made.joinpath(path).parent.mkdir(parents=True, exist_ok=True)
        made.joinpath(path).write_bytes(data)
    return made


@pytest.mark.parametrize(
    "damaged",
    [
        {"program.bc": b""},
        {"program.bc": bytes(4096)},
        {"k/8-1-1/k.so": b""},
        {"k/8-1-1/k.so": LIBRARY[: len(LIBRARY) // 2]},
        {"k/8-1-1/k.so": bytes(len(LIBRARY))},
    ],
    ids=["no bitcode", "bitcode of zeros", "no library", "half a library", "a library of zeros"],
)
def test_a_program_with_a_damaged_file_is_removed(
    tmp_path: Path, damaged: dict[str, bytes]
) -> None:
    whole, other = program(tmp_path, "WHOLE", {}), program(tmp_path, "OTHER", damaged)
    remove_damaged_kernels(tmp_path)
    assert whole.joinpath("k/0-0-0/k.so").read_bytes() == LIBRARY and not other.exists()
