"""The libraries that `build_adapter` makes, in programs of C and of Python: how they find their
Python, start, answer, and end."""

from __future__ import annotations

import os
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.hosts import Host, compile_host
from helpers.suites import RunSuite
from helpers.support import ROOT, Output, RunPython, run_program

from fairlead.loader.base.shell_copies import (
    MARK,
    ROOM,
    configure,
    find_python_library,
    make_configuration,
    parse_configuration,
)
from fairlead.plugins import build_adapter
from fairlead.plugins.sdk import build
from fairlead.plugins.sdk._native import ffi
from fairlead.plugins.sdk.start import StartError, get_shell

TOY = ROOT / "examples/toy_adapter.py"
SHELL = Path(build.__file__).with_name("libfairlead_shell.so")
UNINITIALIZED = 37

#: An adapter whose end can be seen.
TALKATIVE = """
import sys
from fairlead.plugins import Adapter
adapter = Adapter({name!r})
platform = adapter.kind("ur_platform_handle_t", counted=False)()
adapter.declare(urPlatformGet=lambda: [platform])
adapter.info("urPlatformGetInfo", {{"UR_PLATFORM_INFO_NAME": "{name}"}})
adapter.on_close.append(lambda: print("{name} closed", {extra}))
"""


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A program in C."""
    return compile_host(tmp_path_factory.mktemp("host"))


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_adapter(TOY, tmp_path_factory.mktemp("toy"))


@pytest.fixture
def adapter_of(tmp_path: Path) -> Callable[..., Path]:
    """Builds the adapter of a module's text."""

    def build(text: str, name: str = "own", library: str | None = None) -> Path:
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        return build_adapter(tmp_path / f"{name}.py", tmp_path / (library or f"lib{name}.so"))

    return build


def talkative(name: str, extra: str = "file=sys.stdout") -> str:
    return TALKATIVE.format(name=name, extra=extra)


def lines(output: Output) -> list[str]:
    return output.out.splitlines()


# building


def test_a_file_becomes_a_library_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("adapter = 1")
    library = build_adapter("mine.py")
    assert library == tmp_path / "libur_adapter_mine.so.0" and os.access(library, os.X_OK)
    found = configured(library)
    assert found["module"] == str(tmp_path / "mine.py") and found["program"] == sys.executable
    assert Path(found["library"]).exists() and Path(found["site"]).is_dir()


def configured(library: Path) -> dict[str, str]:
    data = library.read_bytes()
    at = data.index(MARK)
    return parse_configuration(os.fsdecode(data[at : at + ROOM].rstrip(b"\0")))


def test_a_module_is_known_by_its_name(tmp_path: Path) -> None:
    library = build_adapter("fairlead.plugins.opencl", tmp_path / "deep/er/name.so")
    assert (
        library == tmp_path / "deep/er/name.so"
        and configured(library)["module"] == "fairlead.plugins.opencl"
    )
    assert build_adapter("fairlead.plugins.opencl", tmp_path).name == "libur_adapter_opencl.so.0"


def test_what_is_not_there_cannot_be_built(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.py"):
        build_adapter(tmp_path / "gone.py", tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        build_adapter("no_such_module", tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        build_adapter("no_such_package.module", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "from fairlead.plugins.opencl import adapter",
        "import a as adapter",
        "adapter: int = 1",
        "if True:\n    adapter = 1",
        "for adapter in (1,): pass",
        "def adapter(): ...",
        "class adapter: ...",
        "from fairlead.plugins.opencl import *",
        "def __getattr__(name): ...",
        "globals()['adapter'] = 1",
    ],
)
def test_an_adapter_may_come_about_in_many_ways(tmp_path: Path, text: str) -> None:
    (tmp_path / "own.py").write_text(text)
    assert build_adapter(tmp_path / "own.py", tmp_path).exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Adapter = 1",
        "# adapter = 1",
        "print(adapter)",
        "def f(adapter): adapter = 1",
        "x.adapter = 1",
    ],
)
def test_a_module_without_an_adapter_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "own.py").write_text(text)
    with pytest.raises(ValueError, match="has no variable `adapter`: write "):
        build_adapter(tmp_path / "own.py", tmp_path)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too long"):
        configure(SHELL, tmp_path / "x.so", "m" * ROOM)
    with pytest.raises(ValueError, match="line break"):
        configure(SHELL, tmp_path / "x.so", "a\nb")
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="is not a shell"):
        configure(tmp_path / "empty", tmp_path / "x.so", "m")
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_library_that_cannot_be_replaced_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "x.so").mkdir()
    with pytest.raises(IsADirectoryError):
        configure(SHELL, tmp_path / "x.so", "m")
    assert [path.name for path in tmp_path.iterdir()] == ["x.so"]


def test_building_again_leaves_a_library_in_use_alone(adapter_of: Callable[..., Path]) -> None:
    library = adapter_of(talkative("first"), library="library.so")
    with library.open("rb") as used:
        before = used.read()
        adapter_of(talkative("second"), name="other", library="library.so")
        used.seek(0)
        assert used.read() == before != library.read_bytes()


def test_a_library_that_does_not_stay_here_says_nothing_about_here(tmp_path: Path) -> None:
    configure(SHELL, tmp_path / "x.so", "some.module", here=False)
    assert configured(tmp_path / "x.so") == {"module": "some.module"}


# a program without Python


def test_the_toy_passes_conformance_in_all_that_it_implements(
    toy: Path, run_suite: RunSuite
) -> None:
    """Beyond the specification too: a copy over the end of memory is refused."""
    report = run_suite(toy, area=("arguments", "bad-input", "device", "usm"))
    assert [case.line for case in report.cases if case.outcome == "failed"] == []
    refused = "size is 1048576", "pDst leads to no memory", "pSrc leads to no memory"
    copies = [case for case in report.cases if case.entry_point == "urEnqueueUSMMemcpy"]
    assert {case.rule: case.outcome for case in copies if case.rule in refused} == dict.fromkeys(
        refused, "passed"
    )


BROKEN = """
@adapter.entry
def urUSMDeviceAlloc(size):
    raise (RuntimeError if size > 8 else KeyError)("broken today")
"""
ALLOCATES = """
from fairlead.runtime import Queue, SYCLError, malloc_device
queue = Queue()
for count in (4, 1):
    try:
        malloc_device(count, "int32", queue)
    except SYCLError as error:
        print(error.message)
"""


def test_what_an_adapter_raises_is_told_by_the_runtime(
    run_python: RunPython, adapter_of: Callable[..., Path]
) -> None:
    library = adapter_of(TOY.read_text(encoding="utf-8") + BROKEN)
    done = run_python(ALLOCATES, env={"UR_ADAPTERS_FORCE_LOAD": str(library)})
    unknown, known = lines(done)
    assert unknown.startswith("The adapter failed: RuntimeError: broken today")
    assert known.startswith(
        "An argument has a value that this function does not accept. 'broken today'"
    )


def test_a_c_program_uses_an_adapter(host: Host, toy: Path) -> None:
    done = host(
        "open", toy, "table", "adapter", "platform", "urAdapterRetain", "urAdapterRelease", "last"
    )
    assert lines(done) == [
        "open: ok",
        "table: 0",
        "adapter: 0 count 1 first word ok",
        "platform: 0 0 Toy platform",
        "urAdapterRetain: 0",
        "urAdapterRelease: 0",
        "last: 0 0 ",
    ]
    assert (done.code, done.err) == (0, "")


def test_a_getter_of_another_version_starts_nothing(
    host: Host, adapter_of: Callable[..., Path]
) -> None:
    library = adapter_of("print('imported', flush=True)\n" + talkative("x"))
    done = host("open", library, "table-of", "11", "table-of", "-1", "table", "table")
    assert lines(done) == [
        "open: ok",
        "table: 43",
        "table: 48",
        "imported",
        "table: 0",
        "table: 0",
        "x closed",
    ]


@pytest.mark.parametrize(
    ("layout", "table", "index", "function"),
    [
        ("", "Enqueue", "0", "urEnqueueEventsWait"),
        ("2026.2", "Enqueue", "0", "urEnqueueEventsWait"),
        ("2026.1", "Enqueue", "0", "urEnqueueKernelLaunch"),
        ("2026.0", "Enqueue", "1", "urEnqueueEventsWait"),
        ("2025.3", "Kernel", "9", "urKernelSetArgValue"),
    ],
)
def test_the_layout_of_the_tables_can_be_chosen(
    host: Host, toy: Path, layout: str, table: str, index: str, function: str
) -> None:
    done = host("open", toy, "slot", table, index, function, env={"FAIRLEAD_UR_LAYOUT": layout})
    assert lines(done) == ["open: ok", "slot: 0 yes"] and done.err == ""


def test_a_layout_that_is_not_known_is_named_and_ignored(host: Host, toy: Path) -> None:
    words = "open", toy, "slot", "Enqueue", "0", "urEnqueueEventsWait"
    done = host(*words, env={"FAIRLEAD_UR_LAYOUT": "2025.2"})
    assert lines(done)[1] == "slot: 0 yes"
    assert (
        done.err
        == "fairlead: FAIRLEAD_UR_LAYOUT=2025.2 is ignored: it may be 2026.2 2026.1 2026.0 2025.3\n"
    )


# which Python


def test_variables_that_are_meant_for_another_python_do_no_harm(host: Host, toy: Path) -> None:
    done = host(
        "open", toy, "table", env={"PYTHONHOME": "/nowhere", "PYTHONPATH": str(ROOT / "tests/fake")}
    )
    assert lines(done)[1] == "table: 0" and done.err == ""


def test_the_libraries_of_intels_wheels_do_no_harm(host: Host, toy: Path) -> None:
    libraries = os.path.join(sys.prefix, "lib")
    assert list(Path(libraries).glob("libsvml.so")), "the wheels of the test extra are installed"
    for program in ("", sys.executable):
        given = "open", toy, "table", "adapter"
        done = host(*given, env={"LD_LIBRARY_PATH": libraries, "FAIRLEAD_PYTHON": program})
        assert lines(done)[1] == "table: 0" and done.err == ""


@pytest.fixture
def homeless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy's library, whose Python is not where it was."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nowhere/bin/python3")
        return build_adapter(TOY, tmp_path / "lib/libtoy.so")


def test_no_python_at_all_is_an_error_that_says_what_to_do(host: Host, homeless: Path) -> None:
    done = host("open", homeless, "table", "table", "urAdapterRelease")
    assert lines(done) == [
        "open: ok",
        f"table: {UNINITIALIZED}",
        f"table: {UNINITIALIZED}",
        f"urAdapterRelease: {UNINITIALIZED}",
    ]
    assert done.code == 0
    assert done.err == (
        f"fairlead: {homeless} cannot start: no Python was found: there is no "
        "/nowhere/bin/python3; "
        "FAIRLEAD_PYTHON may name one in whose environment fairlead is installed\n"
    )


def test_fairlead_python_names_another_one(host: Host, homeless: Path) -> None:
    done = host("open", homeless, "table", "adapter", env={"FAIRLEAD_PYTHON": sys.executable})
    assert lines(done)[1] == "table: 0" and done.err == ""


def test_a_program_sees_no_child_of_an_adapter(host: Host, homeless: Path) -> None:
    """Its handler of SIGCHLD reaps whatever ends, and its wait() finds no child."""
    env = {"FAIRLEAD_PYTHON": sys.executable}
    done = host("watch", "open", homeless, "table", "children", env=env)
    assert lines(done)[1:] == ["table: 0", "0 signals, 0 children"] and done.err == ""


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("/nowhere/python", "FAIRLEAD_PYTHON is /nowhere/python, which cannot be executed"),
        ("/bin/true", "/bin/true does not say where its shared library is: is it a Python?"),
        ("/no'where", "FAIRLEAD_PYTHON is /no'where, which cannot be executed"),
        ("/bin", "FAIRLEAD_PYTHON is /bin, which cannot be executed"),
        ("/etc/passwd", "FAIRLEAD_PYTHON is /etc/passwd, which cannot be executed"),
        ("python3.99", "FAIRLEAD_PYTHON is python3.99, which is not a program on PATH"),
    ],
)
def test_fairlead_python_is_no_python(host: Host, toy: Path, program: str, says: str) -> None:
    done = host("open", toy, "table", env={"FAIRLEAD_PYTHON": program})
    assert (
        lines(done)[1] == f"table: {UNINITIALIZED}"
        and done.err == f"fairlead: {toy} cannot start: {says}\n"
    )


def test_fairlead_python_without_a_slash_is_looked_up_on_path(host: Host, homeless: Path) -> None:
    folder, name = os.path.split(sys.executable)
    path = os.pathsep.join(("/nowhere", folder, os.environ["PATH"]))
    done = host("open", homeless, "table", "adapter", env={"FAIRLEAD_PYTHON": name, "PATH": path})
    assert lines(done)[1] == "table: 0" and done.err == ""


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            '#!/bin/sh\nread line < "$0.pipe"\n',
            "did not say within 0.5 s where its shared library is: is it a Python?",
        ),
        ("#!/nowhere/sh\n", "cannot be run: No such file or directory"),
    ],
)
def test_a_python_that_hangs_or_cannot_be_run_is_said_to(
    host: Host, toy: Path, tmp_path: Path, script: str, says: str
) -> None:
    program = tmp_path / "own python"
    program.write_text(script)
    program.chmod(0o755)
    os.mkfifo(f"{program}.pipe")  # nobody writes to it
    done = host(
        "open", toy, "table", env={"FAIRLEAD_PYTHON": str(program), "FAIRLEAD_PROBE_TIMEOUT": "0.5"}
    )
    assert (
        lines(done)[1] == f"table: {UNINITIALIZED}"
        and done.err == f"fairlead: {toy} cannot start: {program} {says}\n"
    )


def test_a_python_that_answers_and_does_not_end_is_ended(
    host: Host, toy: Path, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    library = find_python_library()
    program.write_text(f"#!/bin/sh\necho {library}\nexec >&- 2>&-\nread line < $0.pipe\n")
    program.chmod(0o755)
    os.mkfifo(f"{program}.pipe")  # nobody writes to it
    started = time.monotonic()
    host(
        "open", toy, "table", env={"FAIRLEAD_PYTHON": str(program), "FAIRLEAD_PROBE_TIMEOUT": "0.5"}
    )
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("/usr/lib/libpython3.11.a", "was built without a shared library (--enable-shared)"),
        ("/nowhere/libpython3.11.so", "/nowhere/libpython3.11.so: cannot open shared object file"),
        ("/lib/x86_64-linux-gnu/libm.so.6", "is of an unknown version"),
        ("", "does not say where its shared library is"),
    ],
)
def test_a_python_that_cannot_serve(
    host: Host, toy: Path, tmp_path: Path, answer: str, says: str
) -> None:
    program = tmp_path / "python3"
    program.write_text(f"#!/bin/sh\nprintf '{answer}'\n")
    program.chmod(0o755)
    done = host("open", toy, "table", env={"FAIRLEAD_PYTHON": str(program)})
    assert lines(done)[1] == f"table: {UNINITIALIZED}" and says in done.err and done.code == 0


def test_the_python_of_an_environment_is_found_from_a_library_in_it(
    host: Host, tmp_path: Path
) -> None:
    site = environment(tmp_path / "env")
    Path(site, "own.pth").write_text(
        f"import site; site.addsitedir({make_configuration('x').split('site=')[1].strip()!r})\n"
    )
    library = Path(site, "some/package/libtoy.so")
    configure(SHELL, library, str(TOY), here=False)
    done = host("open", library, "table", "adapter")
    assert lines(done)[1:] == ["table: 0", "adapter: 0 count 1 first word ok"] and done.err == ""


def environment(path: Path) -> str:
    """The site-packages of a new environment, which is empty."""
    venv.create(path, symlinks=True)
    return str(
        path / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    )


def test_an_environment_without_fairlead_says_so(host: Host, tmp_path: Path) -> None:
    library = Path(environment(tmp_path / "env"), "libtoy.so")
    configure(SHELL, library, str(TOY), here=False)
    done = host("open", library, "table")
    assert lines(done)[1] == f"table: {UNINITIALIZED}"
    says = (
        f"fairlead cannot be used by Python {sys.version.split()[0]} of "
        f"{tmp_path / 'env'}: install it there"
    )
    assert done.err.endswith(f"fairlead: {library} cannot start: ImportError: {says}\n")


# modules that are wrong


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        ("adapter = (", "SyntaxError"),
        ("raise SystemExit(3)", "the module ends the process: SystemExit(3)"),
        ("import sys; sys.exit()", "the module ends the process"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("adapter = 5", "own.py has no variable `adapter` that is a fairlead.plugins.Adapter"),
        ("", "has no variable `adapter`"),
        (
            "from fairlead.plugins import Adapter; adapter = Adapter('x'); "
            "adapter.declare(urNothing=None)",
            "no function urNothing",
        ),
    ],
)
def test_a_module_that_fails_is_an_error_with_its_traceback(
    host: Host, adapter_of: Callable[..., Path], text: str, says: str
) -> None:
    library = adapter_of("adapter = 1")
    library.with_name("own.py").write_text(text)  # a module may change after its library was built
    done = host("open", library, "table", "table", "adapter")
    assert lines(done)[1:3] == [f"table: {UNINITIALIZED}"] * 2 and done.code == 0
    assert done.err.startswith("Traceback")
    last = done.err.splitlines()[-1]
    assert last.startswith(f"fairlead: {library} cannot start: ") and says in last


def test_a_module_that_is_gone(host: Host, adapter_of: Callable[..., Path]) -> None:
    library = adapter_of(talkative("x"))
    library.with_name("own.py").unlink()
    done = host("open", library, "table")
    assert lines(done)[1] == f"table: {UNINITIALIZED}" and "own.py" in done.err


def test_an_adapter_that_asks_for_itself_while_it_starts_is_not_there_yet(
    host: Host, adapter_of: Callable[..., Path]
) -> None:
    library = adapter_of(
        "import ctypes; own = ctypes.CDLL(__file__.replace('own.py', 'libown.so'))\n"
        "print('inside', own.urGetAdapterProcAddrTable(12, "
        "ctypes.create_string_buffer(1000)), flush=True)\n" + talkative("x")
    )
    given = "open", library, "table"
    assert lines(host(*given)) == ["open: ok", f"inside {UNINITIALIZED}", "table: 0", "x closed"]


def test_a_path_may_have_any_characters(host: Host, tmp_path: Path) -> None:
    folder = tmp_path / "ä ö'\"{}%s"
    folder.mkdir()
    (folder / "own.py").write_text(talkative("x"))
    library = build_adapter(folder / "own.py", folder)
    for env in ({}, {"LC_ALL": "C", "LANG": "C"}):
        assert lines(host("open", library, "table", env=env))[1] == "table: 0"


# ends


def test_at_the_end_of_the_program_the_adapter_is_closed(
    host: Host, adapter_of: Callable[..., Path]
) -> None:
    library = adapter_of(talkative("own", "end=' (not flushed)\\n'"))
    done = host("open", library, "table", "adapter")
    assert lines(done)[-1] == "own closed (not flushed)" and (done.code, done.err) == (0, "")


def test_calls_after_the_end_are_answered_without_python(host: Host, toy: Path) -> None:
    done = host("late", "open", toy, "table", "adapter")
    assert lines(done)[-3:] == [
        "late: urAdapterRelease: 0",
        f"late: urAdapterRetain: {UNINITIALIZED}",
        f"table: {UNINITIALIZED}",
    ]
    assert (done.code, done.err) == (0, "")


def test_a_library_that_is_closed_stays(host: Host, adapter_of: Callable[..., Path]) -> None:
    library = adapter_of(talkative("own"))
    done = host("open", library, "table", "adapter", "unload")
    assert lines(done)[-2:] == ["unload: 0", "own closed"] and (done.code, done.err) == (0, "")


def test_an_adapter_that_was_never_used_ends_quietly(host: Host, toy: Path) -> None:
    done = host("late", "open", toy)
    assert (
        lines(done)[1] == f"late: urAdapterRelease: {UNINITIALIZED}"
    )  # and then the table is asked for, which starts it
    assert (done.code, done.err) == (0, "")


# threads, several adapters


def test_many_threads_may_be_the_first(host: Host, toy: Path) -> None:
    done = host("open", toy, "threads", "32")
    assert lines(done) == ["open: ok", "threads: 0 failed"] and (done.code, done.err) == (0, "")


def test_two_adapters_in_one_program(
    host: Host, toy: Path, adapter_of: Callable[..., Path]
) -> None:
    other = adapter_of(talkative("other"))
    both = f"late open {toy} table adapter open {other} table adapter platform "
    done = host(*(both + "pick 0 platform threads 8 pick 1 threads 8").split())
    assert [line for line in lines(done) if "platform" in line] == [
        "platform: 0 0 other",
        "platform: 0 0 Toy platform",
    ]
    assert lines(done).count("threads: 0 failed") == 2
    assert "other closed" in lines(done) and lines(done).count("late: urAdapterRelease: 0") == 2
    assert (done.code, done.err) == (0, "")


def test_two_libraries_of_one_adapter_are_one_adapter(
    host: Host, adapter_of: Callable[..., Path]
) -> None:
    first = adapter_of(talkative("one"), library="first.so")
    second = adapter_of(talkative("one"), library="second.so")
    words = f"open {first} adapter table adapter open {second} table adapter platform"
    done = host(*words.split(), "pick", "0", "platform")
    assert lines(done).count("platform: 0 0 one") == 2
    assert lines(done).count("one closed") == 1 and (done.code, done.err) == (0, "")


def test_files_of_the_same_name_are_different_modules(host: Host, tmp_path: Path) -> None:
    libraries = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.py").write_text(talkative(f"of {name}"))
        libraries.append(build_adapter(tmp_path / name / "own.py", tmp_path / name))
    words = [f"open {library} table adapter platform" for library in libraries[:2]]
    done = host(*" ".join(words).split())
    assert [line for line in lines(done) if line.startswith("platform")] == [
        "platform: 0 0 of a",
        "platform: 0 0 of b",
    ]


# programs of Python

IN_PYTHON = """
import ctypes, sys, _ctypes
library = ctypes.CDLL(sys.argv[1])
table = (ctypes.c_void_p * 300)()
print("table", library.urGetAdapterProcAddrTable(12, table))
adapter = ctypes.c_void_p()
print("adapter", library.urAdapterGet(1, ctypes.byref(adapter), None))
"""


def test_a_python_program_uses_an_adapter_in_its_own_python(
    run_python: RunPython, adapter_of: Callable[..., Path]
) -> None:
    library = adapter_of("import sys; print('in', sys.argv[0], flush=True)\n" + talkative("own"))
    done = run_python(
        IN_PYTHON
        + (
            "print(sorted(set(globals()) - {'ctypes', 'sys', '_ctypes', 'library', "
            "'table', 'adapter'}))"
        ),
        str(library),
    )
    assert lines(done)[:3] == ["in -c", "table 0", "adapter 0"] and lines(done)[-1] == "own closed"
    assert "fairlead" not in lines(done)[3] and "_begin" not in lines(done)[3], (
        "the program's own module is left alone"
    )


def test_a_python_program_without_fairlead_gets_it_from_where_the_library_was_built(
    toy: Path,
) -> None:
    base = os.path.join(
        sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}"
    )
    done = run_program(base, "-c", IN_PYTHON, toy, cwd=toy.parent)
    assert done.out.splitlines() == ["table 0", "adapter 0"] and (
        done.code,
        done.err,
    ) == (0, "")


def test_any_python_that_is_here_gets_an_answer(toy: Path) -> None:
    """Where fairlead's needs cannot be imported, because they are for another version, the answer
    is an error that says so."""
    for program in sorted(Path(sys.base_prefix).parent.glob("3.1*/bin/python3")):
        done = run_program(program, "-c", IN_PYTHON, toy, cwd=toy.parent)
        works = done.out.splitlines() == ["table 0", "adapter 0"]
        says = "cannot start: ImportError: fairlead cannot be used by Python 3." in done.err
        assert done.code == 0 and (works or says), f"{program}: {done.out}{done.err}"


def test_a_python_program_may_close_the_library_and_end(
    run_python: RunPython, adapter_of: Callable[..., Path]
) -> None:
    done = run_python(
        IN_PYTHON + "_ctypes.dlclose(library._handle); print('unloaded')",
        str(adapter_of(talkative("own"))),
    )
    assert lines(done)[-2:] == ["unloaded", "own closed"] and done.err == ""


def test_python_calls_after_the_end_are_answered(run_python: RunPython, toy: Path) -> None:
    code = (
        "import atexit, ctypes\natexit.register(lambda: "
        "print(library.urAdapterRelease(adapter), library.urAdapterRetain(adapter)))\n"
    )
    done = run_python(code + IN_PYTHON, str(toy), fresh=True)  # without fairlead in it yet
    assert lines(done)[-1] == f"0 {UNINITIALIZED}"


def test_finalizers_of_others_may_call_the_adapter(
    run_python: RunPython, adapter_of: Callable[..., Path]
) -> None:
    code = (
        "import sys, weakref\n"
        "def leave():\n"
        "    print('leave', library.urAdapterRetain(adapter), library.urAdapterRelease(adapter))\n"
        "weakref.finalize(sys, leave)\n"
    )
    done = run_python(code + IN_PYTHON, str(adapter_of(talkative("own"))))
    assert lines(done)[-2:] == ["leave 0 0", "own closed"] and done.err == ""


def test_threads_of_python_may_be_the_first(run_python: RunPython, toy: Path) -> None:
    code = """
import ctypes, sys, threading
library, codes = ctypes.CDLL(sys.argv[1]), []
holds_gil = ctypes.PyDLL(sys.argv[1])
def work(index):
    table = (ctypes.c_void_p * 300)()
    codes.append((holds_gil if index % 2 else library).urGetAdapterProcAddrTable(12, table))
threads = [threading.Thread(target=work, args=(index,)) for index in range(32)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
print(codes == [0] * 32)
"""
    assert run_python(code, str(toy)).out == "True\n"


def test_a_shell_of_another_fairlead_is_refused() -> None:
    shell = ffi.new("fl_shell *")
    with pytest.raises(StartError, match="another version of fairlead"):
        get_shell(int(ffi.cast("uintptr_t", shell)))
