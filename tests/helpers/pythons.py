"""Runs commands on every Python that setup.cfg promises: `make test-pythons`, `make demo-pythons`.

    PYTHONPATH=tests python -m helpers.pythons suite [PYTHON...] [--tests TESTS]
    PYTHONPATH=tests python -m helpers.pythons demo [PYTHON...]

`suite` calls `make demo` and `make test` in a copy of the tree for each Python, because the native
modules are built in the tree. The copies are in build/pythons, and the next run uses them again.

`demo` is cheap. It builds one wheel, and installs it for each Python. There it imports every module
of the package, and runs the demo.

Without PYTHON, each version that setup.cfg names is searched on PATH and among pyenv's. A missing
one is skipped. One line is printed for each Python. The exit code is 1 if one of them failed.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from helpers.sources import copy_sources

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "build" / "pythons"

#: What a Python is asked: its path and its version, if it can make an environment.
_ASK: Final = (
    "import ensurepip, platform, sys; print(sys.executable, platform.python_version(), sep='\\n')"
)
#: Imports every module, except those that run something or need an extra. Libraries have the same
#: suffix as modules.
_IMPORT: Final = """
import importlib, pkgutil, fairlead


def fail(name):
    raise


found = [module.name for module in pkgutil.walk_packages(fairlead.__path__, "fairlead.", fail)]
names = [
    name
    for name in found
    if not name.rpartition(".")[2].startswith(
        ("__main__", "preload", "dask", "cuda_sharing", "lib")
    )
]
for name in names:
    importlib.import_module(name)
print(len(names), "modules")
"""


class Python(NamedTuple):
    """A Python: its path, and its whole version."""

    path: str
    version: str

    @property
    def release(self) -> str:
        """The version without its last number, "3.10"."""
        return ".".join(self.version.split(".")[:2])


class Failed(Exception):
    """Something did not succeed on a Python. The message says what."""


def promised() -> list[str]:
    """The versions that setup.cfg names, "3.10" and so on."""
    text = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    return re.findall(r"Programming Language :: Python :: (3\.\d+)", text)


def ask(command: str) -> Python | None:
    """Return the Python that a command starts; None if it cannot make an environment."""
    try:
        done = subprocess.run(
            [command, "-c", _ASK], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
    except OSError:
        return None
    return Python(*done.stdout.splitlines()) if done.returncode == 0 else None


def find(release: str) -> Python | None:
    """Return a Python of a release: the first on PATH, else pyenv's newest.

    pyenv's commands on PATH may start nothing.
    """
    on_path = (os.path.join(folder, f"python{release}") for folder in os.get_exec_path() if folder)
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    by_pyenv = sorted(
        versions.glob(f"{release}.*/bin/python"),
        key=lambda path: [int(number) for number in re.findall(r"\d+", path.parts[-3])],
        reverse=True,
    )
    found = (ask(str(command)) for command in (*on_path, *by_pyenv))
    return next((python for python in found if python and python.release == release), None)


def run(log: Path, *command: str | Path, cwd: Path, **variables: str) -> None:
    """Run a command, and add what it prints to a file. Raises Failed."""
    environ = {**os.environ, **variables}
    for name in ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "PYTHONPATH", "VIRTUAL_ENV"):
        environ.pop(name, None)  # they are those of the make that runs this
    with log.open("a", encoding="utf-8") as output:
        shown = " ".join(map(str, command))
        print("$", shown, file=output, flush=True)
        done = subprocess.run(
            command, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    if done.returncode:
        raise Failed(f"exit code {done.returncode} of {shown.splitlines()[0]}: see {log}")


def copy_tree(target: Path) -> None:
    """Update a copy of the tree. What was built in it stays, and make rebuilds what changed."""
    with TemporaryDirectory(dir=FOLDER) as folder:
        now, before = Path(folder, "now"), Path(folder, "before")
        copy_sources(ROOT, now)
        if target.exists():
            copy_sources(target, before)
        for path in _files(before):
            if not _are_same(now / path, before / path):
                (target / path).unlink()
        for path in _files(now):
            if not os.path.lexists(target / path):
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(now / path, target / path, follow_symlinks=False)  # changed just now


def _are_same(one: Path, other: Path) -> bool:
    """Whether two paths are equal links or equal files."""
    if not os.path.lexists(one) or one.is_symlink() != other.is_symlink():
        return False
    if one.is_symlink():
        return one.readlink() == other.readlink()
    return filecmp.cmp(one, other, shallow=False)


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_symlink() or path.is_file():
            yield path.relative_to(folder)


def suite(python: Python, log: Path, tests: str) -> str:
    """Run `make demo` and `make test` in a copy of the tree.

    Returns pytest's last line. Raises Failed.
    """
    tree = FOLDER / python.release
    copy_tree(tree)
    make = ("make", f"PYTHON={python.path}")
    installed = tree / ".venv" / "made-by"
    if not installed.exists() or installed.read_text(encoding="utf-8") != python.path:
        run(log, *make, "clean", cwd=tree)
    run(log, *make, "demo", cwd=tree)
    installed.write_text(python.path, encoding="utf-8")
    try:
        run(log, *make, "test", f"TESTS={tests}", cwd=tree)
    except Failed as error:
        raise Failed(f"{_last_line(log)}; {error}") from None
    return _last_line(log)


def _last_line(log: Path) -> str:
    lines = re.findall(
        r"^.*\d+ (?:passed|failed|error).*$|^no tests ran.*$", log.read_text("utf-8"), re.M
    )
    return lines[-1].strip("= ") if lines else "pytest did not run"


def build_wheel() -> Path:
    """The wheel of the tree. Raises Failed."""
    tree, wheels, log = FOLDER / "wheel-tree", FOLDER / "wheels", FOLDER / "wheel.log"
    for folder in (tree, wheels):  # setuptools packs what a former build has left
        shutil.rmtree(folder, ignore_errors=True)
    log.unlink(missing_ok=True)
    copy_sources(ROOT, tree)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps")
    run(log, *pip, "--wheel-dir", wheels, tree, cwd=FOLDER)
    return next(wheels.glob("*.whl"))


def demo(python: Python, log: Path, wheel: Path) -> str:
    """Import every module and run the demo, with the wheel.

    Returns the number of modules. Raises Failed.
    """
    environment = FOLDER / f"wheel-{python.release}"
    run(log, python.path, "-m", "venv", "--clear", environment, cwd=FOLDER)
    within = environment / "bin" / "python"
    wanted = f"{wheel}[conformance,graph,pocl,pyopencl]"
    run(log, within, "-m", "pip", "install", "--quiet", wanted, cwd=FOLDER)
    run(log, within, "-c", _IMPORT, cwd=FOLDER)
    count = re.findall(r"^\d+ modules$", log.read_text("utf-8"), re.M)[-1]
    caches = {f"{name}_CACHE_DIR": str(environment / name.lower()) for name in ("POCL", "PYOPENCL")}
    run(log, within, ROOT / "examples" / "wave.py", cwd=FOLDER, **caches)
    return f"the demo runs, and {count} can be imported"


def on_each(what: str, pythons: Sequence[Python], job: Callable[[Python, Path], str]) -> bool:
    """Do a job, called `what`, on each Python, and print a line for each. Whether all succeeded."""
    succeeded = True
    for python in pythons:
        log = FOLDER / f"{what}-{python.release}.log"
        log.unlink(missing_ok=True)
        try:
            verdict = job(python, log)
        except Failed as error:
            succeeded, verdict = False, f"FAILED: {error}"
        print(f"Python {python.version}: {verdict}", flush=True)
    return succeeded


def wanted(commands: Sequence[str]) -> list[Python]:
    """The Pythons of commands, or those that are found. Ends the program if there is none."""
    releases = promised()
    found = [ask(command) for command in commands] or [find(release) for release in releases]
    missing = [name for name, one in zip(commands or releases, found, strict=True) if one is None]
    if commands and missing:
        sys.exit(f"fairlead: no Python with the module ensurepip: {', '.join(missing)}")
    for release in missing:
        print(f"Python {release}: not found on PATH, nor among pyenv's")
    pythons = [one for one in found if one is not None]
    if not pythons:
        sys.exit("fairlead: no Python to test with: name some, PYTHONS='python3.11 /path/python'")
    return pythons


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["suite", "demo"])
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    parser.add_argument("--tests", default="", help="what `make test` is given as TESTS")
    options = parser.parse_intermixed_args()
    pythons = wanted(options.pythons)
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        if options.what == "suite":
            good = on_each("suite", pythons, lambda python, log: suite(python, log, options.tests))
        else:
            wheel = build_wheel()
            good = on_each("demo", pythons, lambda python, log: demo(python, log, wheel))
    except Failed as error:
        sys.exit(f"fairlead: no wheel could be built: {error}")
    sys.exit(not good)


if __name__ == "__main__":
    main()
