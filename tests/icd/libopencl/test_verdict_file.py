"""The verdict file: Python is started when it must be, and only then."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from helpers.support import FakeDriver, RunPython

from fairlead.icd import libopencl
from fairlead.icd.libopencl import verdict_file as verdict_files

from .conftest import Client, run_client, write_manifests

#: Looks once, with variables added.
Look: TypeAlias = Callable[..., tuple[str, int]]


def python(folder: Path) -> dict[str, str]:
    """A Python that leaves a line for each start."""
    program = folder / "python"
    if not program.exists():
        text = f'#!/bin/sh\necho started >> {folder}/starts\nexec {sys.executable} "$@"\n'
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
    return {"FAIRLEAD_PYTHON": str(program)}


def starts(folder: Path) -> int:
    file = folder / "starts"
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0


def verdict_file(folder: Path) -> Path:
    (file,) = (f for f in (folder / "cache/fairlead/drivers").iterdir() if not f.suffix)
    return file


def add_to_verdict(folder: Path, line: str) -> None:
    file = verdict_file(folder)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.removesuffix("end\n") + f"{line}\nend\n", encoding="utf-8")


@pytest.fixture
def seen(client: Client, fake_driver: FakeDriver, tmp_path: Path) -> Look:
    """What the client sees of one driver, and how often Python was started until then."""
    driver = Path(shutil.copy(fake_driver(), tmp_path / "driver.so"))
    write_manifests(tmp_path / "ours", [driver])

    def look(**env: str) -> tuple[str, int]:
        given = {**python(tmp_path), "OCL_ICD_VENDORS": str(tmp_path / "ours"), **env}
        return client("names", by="verdict", env=given).out.strip(), starts(tmp_path)

    return look


def test_python_is_started_once(seen: Look, tmp_path: Path) -> None:
    assert [seen(), seen(), seen()] == 3 * [("Fake 0", 1)]
    assert verdict_file(tmp_path).stat().st_mode & 0o777 == 0o600


def test_python_is_started_again_when_something_changed(
    seen: Look, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    seen()
    other = Path(shutil.copy(fake_driver(name='"Other"'), tmp_path / "other.so"))
    (tmp_path / "ours/1.icd").write_text(f"{other}\n", encoding="utf-8")
    assert [seen(), seen()] == 2 * [("Fake 0, Other 0", 2)], "a manifest more"
    os.replace(other, tmp_path / "driver.so")
    assert [seen(), seen()] == 2 * [("Other 0", 3)], "another file of that name; one is gone"
    assert [seen(OCL_ICD_FILENAMES="/nowhere.so"), seen()] == 2 * [("Other 0", 4)], "a variable"


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: text[:-5],
        lambda text: text.replace(b"fairlead drivers 1", b"fairlead drivers 9"),
        lambda text: text.replace(b"OCL_ICD_VENDORS=", b"OCL_ICD_VENDORS=x"),
        lambda text: text.replace(b"\nfile ", b"\nfile x"),
        lambda text: text.replace(b"\ndriver ", b"\nuntil 5\ndriver "),
        lambda text: text.replace(b"\ndriver ", b"\nuntil 99999999999\ndriver "),
        lambda text: bytes(len(text)),
    ],
)
def test_a_damaged_or_foreign_file_is_written_anew(
    seen: Look, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    seen()
    file = verdict_file(tmp_path)
    file.write_bytes(damage(file.read_bytes()))
    assert [seen(), seen()] == 2 * [("Fake 0", 2)]


def test_a_file_that_others_may_write_is_not_believed(seen: Look, tmp_path: Path) -> None:
    seen()
    verdict_file(tmp_path).chmod(0o666)
    assert seen() == ("Fake 0", 2)
    file = verdict_file(tmp_path)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert seen() == ("Fake 0", 3)


@pytest.mark.parametrize("name", ["fairlead", "fairlead/drivers"])
def test_a_folder_that_is_a_link_is_not_used(seen: Look, tmp_path: Path, name: str) -> None:
    seen()
    folder = tmp_path / "cache" / name
    folder.rename(tmp_path / "elsewhere")
    before = sorted(tmp_path.glob("elsewhere/**/*"))
    folder.symlink_to(tmp_path / "elsewhere")
    assert [seen(), seen()] == [("Fake 0", 2), ("Fake 0", 3)]
    assert sorted(tmp_path.glob("elsewhere/**/*")) == before, "nothing is written through it"


def test_folders_are_for_their_user_alone(seen: Look, tmp_path: Path) -> None:
    seen()
    folders = [tmp_path / "cache", tmp_path / "cache/fairlead", tmp_path / "cache/fairlead/drivers"]
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 3
    folders[2].chmod(0o777)
    assert seen() == ("Fake 0", 1) and folders[2].stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize(
    "name", ["cache", "cache/fairlead", "cache/fairlead/drivers", "the verdict itself"]
)
def test_root_believes_no_files_of_others(seen: Look, tmp_path: Path, name: str) -> None:
    seen()
    file = verdict_file(tmp_path)
    place = file if name == "the verdict itself" else tmp_path / name
    os.chown(place, 12345, 12345)
    assert seen() == ("Fake 0", 2)
    owner = file.stat().st_uid
    assert owner == 0
    assert [seen()] == [("Fake 0", 2 if place == file else 3)], "a new file, or none"


def test_without_a_cache_each_process_asks_python(seen: Look, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for cache in (f"{tmp_path}/file", "/proc/none"):
        before = starts(tmp_path)
        assert seen(XDG_CACHE_HOME=cache) == ("Fake 0", before + 1)


def test_python_may_be_a_name_on_the_path(seen: Look, tmp_path: Path) -> None:
    python(tmp_path)
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert seen(FAIRLEAD_PYTHON="python", PATH=path) == ("Fake 0", 1)


def test_each_python_has_its_own_verdict(seen: Look, tmp_path: Path) -> None:
    """Another Python has other drivers. 0 means none, also where one has answered before."""
    other = tmp_path / "other"
    assert seen() == ("Fake 0", 1)
    shutil.copy(tmp_path / "python", other)
    assert seen(FAIRLEAD_PYTHON=str(other)) == ("Fake 0", 2)
    add_line = "driver /nowhere/libnone.so"
    for file in (tmp_path / "cache/fairlead/drivers").iterdir():
        if not file.suffix:
            text = file.read_text(encoding="utf-8")
            file.write_text(text.removesuffix("end\n") + f"{add_line}\nend\n", encoding="utf-8")
    assert seen(FAIRLEAD_PYTHON="0") == ("Fake 0", 2)


@pytest.mark.parametrize("path", [".", "", "/nowhere:", "lib", "/nowhere;lib"])
def test_a_relative_linker_path_is_that_of_each_directory(
    client_path: Path, fake_driver: FakeDriver, tmp_path: Path, path: str
) -> None:
    """A verdict of one directory must not load that directory's library in another one."""
    write_manifests(tmp_path / "vendors", [Path("libbare.so")])
    env = {"OCL_ICD_VENDORS": str(tmp_path / "vendors"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    env["LD_LIBRARY_PATH"] = path or ":"
    for name in ("One", "Two", "One"):
        here = tmp_path / name
        (here / "lib").mkdir(parents=True, exist_ok=True)
        for folder in (here, here / "lib"):
            shutil.copy(fake_driver(name=f'"{name}"'), folder / "libbare.so")
        command = ["sh", "-c", 'cd "$0" && exec "$@"', here, client_path, "names"]
        assert run_client(command, env).out == f"{name} 0\n"


def test_a_driver_that_comes_into_an_earlier_folder_is_seen(
    seen: Look, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    write_manifests(tmp_path / "ours", [Path("libbare.so")])
    for name in ("earlier", "later"):
        (tmp_path / name).mkdir()
    env = {"LD_LIBRARY_PATH": f"{tmp_path}/earlier:{tmp_path}/later"}
    shutil.copy(fake_driver(), tmp_path / "later/libbare.so")
    assert [seen(**env), seen(**env)] == 2 * [("Fake 0", 1)]
    shutil.copy(fake_driver(name='"Other"'), tmp_path / "earlier/libbare.so")
    assert [seen(**env), seen(**env)] == 2 * [("Other 0", 2)]


def test_a_refusal_ends_when_what_is_missing_is_there(
    seen: Look, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """The library that the driver misses comes into a folder of the linker, not the driver's."""
    folder = tmp_path / "libraries"
    folder.mkdir()
    needed = folder / "libfl-needed-later.so"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", needed]
    subprocess.run([*command, f"-Wl,-soname,{needed.name}"], check=True)
    driver = tmp_path / "drivers/driver.so"
    driver.parent.mkdir()
    link = ["cc", "-shared", "-fPIC", "-Wl,--no-as-needed", "-x", "c", "/dev/null", "-x", "none"]
    subprocess.run([*link, fake_driver(), needed, "-o", driver], check=True)
    needed.rename(tmp_path / "kept")
    env = {"LD_LIBRARY_PATH": str(folder)}
    write_manifests(tmp_path / "ours", [driver])
    nothing = "clGetPlatformIDs -1001, 0 platforms"
    assert [seen(**env), seen(**env)] == 2 * [(nothing, 1)]
    (tmp_path / "kept").rename(needed)
    assert [seen(**env), seen(**env)] == 2 * [("Fake 0", 2)]


@pytest.mark.parametrize("command", ["devices", "doctor"])
def test_a_command_that_shows_devices_renews_refusals(
    seen: Look, fake_driver: FakeDriver, tmp_path: Path, command: str
) -> None:
    bad = shutil.copy(fake_driver(at_load='if (!getenv("GOOD")) abort()'), tmp_path / "bad.so")
    write_manifests(tmp_path / "ours", [tmp_path / "driver.so", Path(bad)])
    assert [seen(), seen(GOOD="1")] == 2 * [("Fake 0", 1)], "the refusal holds for a while"
    env = {"OCL_ICD_VENDORS": str(tmp_path / "ours"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    run_client([sys.executable, "-m", "fairlead", command], {**env, "GOOD": "1"}, check=False)
    assert seen(GOOD="1") == ("Fake 0, Fake 0", 2)


#: A Python in which no other can be started.
ALONE = f"""#!/bin/sh
code="import runpy, subprocess, sys
subprocess.Popen = None
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name='__main__')"
shift
exec {sys.executable} -ISu -c "$code" "$@"
"""


def test_drivers_are_probed_by_forks_of_that_python(
    client: Client, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """A crash is seen as in a process of another Python."""
    program = tmp_path / "alone"
    program.write_text(ALONE, encoding="utf-8")
    program.chmod(0o755)
    env = {"FAIRLEAD_PYTHON": str(program), "OCL_ICD_ENABLE_TRACE": "1"}
    crashing = fake_driver(at_load="abort()")
    output = client("names", drivers=[fake_driver(), crashing], by="verdict", env=env)
    assert output.out == "Fake 0\n"
    assert "SIGABRT" in output.err and "plain rules" not in output.err


@pytest.mark.parametrize(("probe", "opened"), [("", 2), ("0", 2)])
def test_python_opens_no_driver_twice(
    client: Client, fake_driver: FakeDriver, tmp_path: Path, probe: str, opened: int
) -> None:
    """It is opened in one process of Python, and in the program."""
    where = f'"{tmp_path}/processes"'
    write = f'{{ FILE *f = fopen({where}, "a"); fprintf(f, "%d|", getpid()); fclose(f); }}'
    env = {"FAIRLEAD_PROBE": probe}
    assert client("names", drivers=[fake_driver(at_load=write)], by="verdict", env=env).out
    processes = (tmp_path / "processes").read_text(encoding="utf-8").split("|")[:-1]
    assert len(processes) == len(set(processes)) == opened


def test_what_is_known_to_be_sound_is_looked_at_all_the_same(seen: Look, tmp_path: Path) -> None:
    """Only that says which repairs it needs; another set of variables has another verdict."""
    assert seen() == ("Fake 0", 1)
    assert seen(FAIRLEAD_QUIRKS="0") == ("Fake 0", 2)
    (tmp_path / "cache/fairlead/probes.json").unlink()
    assert seen(FAIRLEAD_QUIRKS="0,0") == ("Fake 0", 3)


def test_platforms_are_sorted_by_their_devices(
    client: Client, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    kinds = {"0": "GPU", "a": "CPU", "b": "GPU"}
    drivers = [
        Path(
            shutil.copy(
                fake_driver(
                    name=f'"{name}"', device_type=f"CL_DEVICE_TYPE_{kind}", devices=int(name != "0")
                ),
                tmp_path / f"{name}.so",
            )
        )
        for name, kind in kinds.items()
    ]
    for value, order in (
        ("devices", "b 0, a 0, 0 0\n"),
        ("", "b 0, a 0, 0 0\n"),
        ("none", "0 0, a 0, b 0\n"),
    ):
        env = {"OCL_ICD_PLATFORM_SORT": value}
        assert client("names", drivers=drivers, by="verdict", env=env).out == order


def test_drivers_that_only_fairlead_finds_come_after_the_others() -> None:
    """So the first platform of a program is the one that its own loader would have given it."""

    def report(name: str, found_via: str, *types: str) -> Any:
        devices = [SimpleNamespace(type=kind) for kind in types]
        platform = SimpleNamespace(devices=devices, device_faults=())
        candidate = SimpleNamespace(found_via=found_via, name=name)
        return SimpleNamespace(candidate=candidate, platforms=[platform], listed=False)

    failed = report("failed", "/etc/OpenCL/vendors")
    failed.listed = True
    search = [
        report("empty", "/etc/OpenCL/vendors"),
        failed,
        report("system", "/etc/OpenCL/vendors", "CPU"),
        report("system GPU", "/etc/OpenCL/vendors", "GPU", "CPU"),
        report("prefix", "Python prefix", "CPU"),
        report("prefix GPU", "Python prefix", "GPU"),
        report("wheel", "PoCL wheel", "CPU"),
        report("shipped", "vendors.d", "CPU"),
    ]
    found: Any = verdict_files._sort_reports(search)
    order = [one.candidate.name for one in found]
    assert order == [
        *("system GPU", "failed", "system", "wheel"),
        *("prefix GPU", "prefix", "shipped", "empty"),
    ]


LIST_PLATFORMS = "import pyopencl; print(*(p.version for p in pyopencl.get_platforms()), sep='|')"


def test_programs_have_the_same_first_platforms_as_without_us(run_python: RunPython) -> None:
    without = run_python(LIST_PLATFORMS, fresh=True).out.strip().split("|")
    env = libopencl.make_environment(os.environ)
    found = run_python(LIST_PLATFORMS, fresh=True, env=env).out.strip().split("|")
    kept = [one for one in without if one in found]
    assert set(found[: len(kept)]) == set(kept)


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A Python environment that has nothing."""
    venv.create(tmp_path / "env", symlinks=True, with_pip=False)
    return tmp_path / "env"


@pytest.mark.parametrize("way", ["by a folder", "by code"])
def test_python_starts_without_the_code_of_packages(
    seen: Look, environment: Path, tmp_path: Path, way: str
) -> None:
    """Folders that .pth files name are searched. Their code runs where nothing else helps."""
    (packages,) = environment.glob("lib/python3*/site-packages")
    (ours,) = (place for place in sys.path if (Path(place) / "cffi").is_dir())
    found = ours if way == "by a folder" else f"import sys; sys.path.append({ours!r})"
    trace = f"import pathlib; pathlib.Path({str(environment)!r}, 'ran').touch()"
    (packages / "a.pth").write_text(f"{trace}\n\n/nowhere\n{found}\n", encoding="utf-8")
    if way == "by a folder":  # Python itself does not start with this
        (packages / "b.pth").write_bytes(b"\xff\xfe\n")
    assert seen(FAIRLEAD_PYTHON=str(environment / "bin/python")) == ("Fake 0", 0)
    assert (environment / "ran").exists() == (way == "by code")
    assert verdict_file(tmp_path).exists()  # it was Python that found the driver


NO_PYTHON = {
    "it is missing": "/nowhere/python",
    "it is no program": "/dev/null",
    "it fails": "/bin/false",
    "it says nothing": "/bin/true",
    "it says something else": "/bin/echo",
}


@pytest.mark.parametrize("case", NO_PYTHON)
def test_without_a_python_one_line_says_so(
    client: Client, fake_driver: FakeDriver, case: str
) -> None:
    env = {"FAIRLEAD_PYTHON": NO_PYTHON[case]}
    output = client("names", drivers=[fake_driver()], by="verdict", env=env)
    assert output.out == "Fake 0\n"
    assert output.err.startswith("fairlead: ") and output.err.count("\n") == 1
    assert "OpenCL drivers are looked for by the plain rules" in output.err
    silent = client("names", drivers=[fake_driver()], env={"FAIRLEAD_PYTHON": "0"})
    assert (silent.out, silent.err) == ("Fake 0\n", "")


def test_python_does_not_get_the_program_s_environment(seen: Look, tmp_path: Path) -> None:
    """A program's PYTHONHOME would end that Python."""
    (tmp_path / "fairlead.py").write_text("raise SystemExit(3)", encoding="utf-8")
    env = {"PYTHONHOME": "/nowhere", "PYTHONPATH": str(tmp_path), "LD_PRELOAD": ""}
    assert seen(**env) == ("Fake 0", 1)


def test_a_program_that_ignores_its_children(
    client: Client, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """Its children are nobody's, and the library cannot wait for one."""
    env = {"OCL_ICD_VENDORS": str(write_manifests(tmp_path / "v", [fake_driver()]))}
    assert client("ignore-children", by="verdict", env=env).out == "Fake 0\n"


def test_a_program_sees_no_child_of_the_library(client: Client, fake_driver: FakeDriver) -> None:
    """Its handler of SIGCHLD reaps whatever ends, and its wait() finds no child."""
    done = client("watch-children", drivers=[fake_driver()], by="verdict")
    assert done.out == "Fake 0\n0 signals, 0 children\n" and done.err == ""


def test_a_folder_where_files_cannot_be_locked(
    client_path: Path, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """As on some network's. The library waited five minutes for a lock that nobody had."""
    source = "#include <errno.h>\nint flock(int f, int o) { return errno = ENOLCK, -1; }\n"
    library = tmp_path / "no_locks.so"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library]
    subprocess.run(command, input=source, text=True, check=True)
    write_manifests(tmp_path / "vendors", [fake_driver()])
    env = {"OCL_ICD_VENDORS": str(tmp_path / "vendors"), "XDG_CACHE_HOME": str(tmp_path)}
    env["LD_PRELOAD"] = str(library)
    done = run_client(["timeout", "120", client_path, "names"], env)
    assert (done.out, done.err) == ("Fake 0\n", "")


def test_too_few_files_for_python(
    client_path: Path, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """The pipe to it needs two. The plain rules do with less."""
    write_manifests(tmp_path / "vendors", [fake_driver()])
    env = {"OCL_ICD_VENDORS": str(tmp_path / "vendors"), "XDG_CACHE_HOME": str(tmp_path)}
    output = run_client(["sh", "-c", 'ulimit -n 5; exec "$@"', "sh", client_path, "names"], env)
    assert output.out == "Fake 0\n"
    assert "cannot be started (Too many open files): OpenCL drivers are looked for by" in output.err


#: Forks at the first question, and says what became of the child, which asks, too.
FORKS = """{ static pid_t child = -1; int status = 0; cl_uint count = 0;
    fn_clGetDeviceIDs *get = (fn_clGetDeviceIDs *)dlsym(RTLD_DEFAULT, "clGetDeviceIDs");
    if (child == -1 && getenv("FORKS")) {
        if ((child = fork()) == 0)
            alarm(20), _exit(get(platform, 0xFFFFFFFF, 0, NULL, &count));
        waitpid(child, &status, 0);
        fprintf(stderr, "child %d", status);
    } }"""


def test_a_fork_while_another_thread_repairs_devices(
    client: Client, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """What repairs has a lock. The child has no such thread."""
    driver = fake_driver(at_devices=FORKS.replace("\n", " "))
    ours = {"OCL_ICD_VENDORS": str(write_manifests(tmp_path / "ours", [driver]))}
    client("names", by="verdict", env=ours)
    add_to_verdict(tmp_path, "cpu 0 0 x86-64")
    output = client("use", by="verdict", env={**ours, "FORKS": "1"})
    assert output.err == "child 0"


def test_why_a_driver_with_libraries_beside_it_was_not_opened_is_said(
    client: Client, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    ours = {"OCL_ICD_VENDORS": str(write_manifests(tmp_path / "ours", [fake_driver()]))}
    client("names", by="verdict", env=ours)
    add_to_verdict(tmp_path, "siblings /nowhere/libnone.so")
    err = client("names", by="verdict", env={**ours, "OCL_ICD_ENABLE_TRACE": "1"}).err
    assert "fairlead: /nowhere/libnone.so: /nowhere/libnone.so: cannot open" in err
