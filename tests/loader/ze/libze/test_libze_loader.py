"""libze_loader.so.1 in C programs, with fake drivers: one, several, old ones and hostile ones."""

from __future__ import annotations

import ctypes
import os
import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.support import ROOT, FakePlugin, Output, RunPython, once

from fairlead.loader.ze import libze_loader
from fairlead.loader.ze.abi import TABLES, ZE, count_entries, name_getter

pytestmark = pytest.mark.slow

TOOLS = runpy.run_path(str(ROOT / "loader/ze/libze_loader/native/build.py"))["read_tools"]()
Client = Callable[..., Output]
UNINITIALIZED, NULL_HANDLE, UNSUPPORTED, ARGUMENT = (
    f"{ZE.codes[f'ZE_RESULT_ERROR_{name}']:#x}"
    for name in ("UNINITIALIZED", "INVALID_NULL_HANDLE", "UNSUPPORTED_FEATURE", "INVALID_ARGUMENT")
)


@pytest.fixture(scope="session")
def program(ze_abi: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled client.c."""

    def build(path: Path) -> None:
        source = ROOT / "tests/loader/ze/libze/client.c"
        library = libze_loader.find_library()
        text = f"cc -std=gnu11 -O1 -Wall -I{ze_abi} {source} -o {path} {library} -lpthread"
        command = [*text.split(), f"-Wl,-rpath,{os.path.dirname(library)}"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    return once(tmp_path_factory, "ze_client", build)


@pytest.fixture
def client(program: Path) -> Client:
    """Runs the client with these drivers."""

    def run(*drivers: Path | str, words: str = "", **more: str) -> Output:
        named = {"ZE_ENABLE_ALT_DRIVERS": ",".join(map(str, drivers))} if drivers else {}
        env = {**os.environ, **named, **more}
        done = subprocess.run([program, *words.split()], env=env, capture_output=True, text=True)
        return Output(done.returncode, done.stdout, done.stderr)

    return run


@pytest.mark.parametrize("words", ["", "old", "twice"])
def test_a_program_uses_the_only_driver(client: Client, fake_ze: FakePlugin, words: str) -> None:
    done = client(fake_ze(devices=2), words=words)
    assert (done.code, done.out, done.err) == (0, "Fake 0\nFake 1\n", "")


@pytest.mark.parametrize("words", ["", "old", "twice"])
def test_several_drivers_each_get_their_own_handles(
    client: Client, fake_ze: FakePlugin, words: str
) -> None:
    drivers = [fake_ze(name=f'"{name}"') for name in ("One", "Two", "Three")]
    done = client(*drivers, words=words)
    assert (done.code, done.out) == (0, "One 0\nTwo 0\nThree 0\n")


def test_threads_use_several_drivers(client: Client, fake_ze: FakePlugin) -> None:
    """More handles come and go than there is room for at first."""
    done = client(fake_ze(), fake_ze(name='"Two"'), words="threads")
    assert (done.code, done.out) == (0, "done\n")


@pytest.mark.parametrize("words", ["", "old"])
@pytest.mark.parametrize("strict", [0, 1])
def test_an_old_driver_works_beside_a_new_one(
    client: Client, fake_ze: FakePlugin, strict: int, words: str
) -> None:
    old = fake_ze(version=4, strict=strict, name='"Old"')
    assert client(old, words=words).out == "Old 0\n"
    assert client(old, fake_ze(), words=words).out == "Old 0\nFake 0\n"


def test_a_function_that_the_driver_lacks_says_so(client: Client, fake_ze: FakePlugin) -> None:
    for drivers in ([fake_ze()], [fake_ze(), fake_ze(name='"Two"')]):
        done = client(*drivers, words="foreign")
        assert done.out.split()[-1] == UNSUPPORTED


def test_a_handle_that_the_loader_did_not_see_made_is_known_by_its_table(
    client: Client, fake_ze: FakePlugin
) -> None:
    """An extension's function made it. Garbage and NULL are refused."""
    done = client(fake_ze(), fake_ze(name='"Two"'), words="foreign")
    assert done.out.split() == ["0", "0", ARGUMENT, NULL_HANDLE, UNSUPPORTED]


def test_arguments_are_checked_if_a_variable_asks_for_it(
    client: Client, fake_ze: FakePlugin
) -> None:
    names = ("NULL_HANDLE", "NULL_POINTER", "ENUMERATION", "SIZE")
    codes = [f"{ZE.codes[f'ZE_RESULT_ERROR_INVALID_{name}']:#x}" for name in names]
    for drivers in ([fake_ze()], [fake_ze(), fake_ze(name='"Two"')]):
        done = client(*drivers, words="wrong", ZE_ENABLE_PARAMETER_VALIDATION="1")
        assert done.out.split() == [*codes, UNSUPPORTED]
        assert client(*drivers, ZE_ENABLE_PARAMETER_VALIDATION="1").out.startswith("Fake 0\n")


def test_calls_before_the_start_are_refused(client: Client, fake_ze: FakePlugin) -> None:
    assert client(fake_ze(), words="early").out == f"{UNINITIALIZED} {UNINITIALIZED}\n"


@pytest.mark.parametrize("minor", [0, 1, 6, 13, 17])
def test_an_older_client_s_smaller_table_is_not_overrun(
    client: Client, fake_ze: FakePlugin, minor: int
) -> None:
    count = count_entries("Driver", 1 << 16 | minor)
    assert client(fake_ze(), words=f"table {minor}").out == f"{count} entries\n"


def test_a_newer_client_is_told_that_its_version_is_not_known(
    client: Client, fake_ze: FakePlugin
) -> None:
    code = ZE.codes["ZE_RESULT_ERROR_UNSUPPORTED_VERSION"]
    done = client(fake_ze(), words="table 18")
    assert done.out == f"zeGetDriverProcAddrTable: {code:#x}\n"


HOSTILE = {
    "no getter of what is needed": {"no_global": 1, "no_driver": 1},
    "NULL entries": {"null_after": 0},
    "getters that fail": {"getter_code": "ZE_RESULT_ERROR_UNINITIALIZED"},
    "an init that fails": {"init_code": "ZE_RESULT_ERROR_DEVICE_LOST"},
    "no device": {"init_code": "ZE_RESULT_ERROR_UNINITIALIZED"},
}


@pytest.mark.parametrize("knobs", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("words", ["", "old"])
def test_a_driver_that_fails_hides_no_other(
    client: Client, fake_ze: FakePlugin, knobs: dict[str, object], words: str
) -> None:
    bad = fake_ze(**knobs)
    done = client(bad, fake_ze(), words=words, ZE_ENABLE_LOADER_DEBUG_TRACE="1")
    assert (done.code, done.out) == (0, "Fake 0\n")
    assert f"fairlead: {bad} is left out" in done.err


def test_the_error_of_the_only_driver_is_the_answer(client: Client, fake_ze: FakePlugin) -> None:
    code = ZE.codes["ZE_RESULT_ERROR_DEVICE_LOST"]
    done = client(fake_ze(init_code="ZE_RESULT_ERROR_DEVICE_LOST"))
    assert (done.code, done.out) == (3, f"zeInitDrivers: {code:#x}\n")


def test_no_driver_is_uninitialized(client: Client) -> None:
    for words, routine in (("", "zeInitDrivers"), ("old", "zeInit")):
        done = client("/nonexistent/driver.so", words=words, ZE_ENABLE_LOADER_DEBUG_TRACE="1")
        assert done.out == f"{routine}: {UNINITIALIZED}\n"
        assert "/nonexistent/driver.so is left out" in done.err


def test_the_library_itself_and_a_driver_that_is_named_twice_are_left_out(
    client: Client, fake_ze: FakePlugin
) -> None:
    done = client(libze_loader.find_library(), fake_ze(), fake_ze())
    assert (done.code, done.out) == (0, "Fake 0\n")


def test_a_getter_that_writes_more_than_is_known_harms_nothing(
    client: Client, fake_ze: FakePlugin
) -> None:
    assert client(fake_ze(beyond=200)).out == "Fake 0\n"


def test_a_driver_that_calls_the_loader_while_it_starts_gets_an_answer(
    client: Client, fake_ze: FakePlugin
) -> None:
    driver = fake_ze(at_init="if (zeInit(0) != ZE_RESULT_ERROR_UNINITIALIZED) crash()")
    assert client(driver).out == "Fake 0\n"


def test_drivers_that_are_ready_are_called_without_a_lock(
    client: Client, fake_ze: FakePlugin
) -> None:
    """A driver in Python waits for the GIL, which another thread in the loader may have."""
    assert client(fake_ze(at_init="meet()"), words="together").out == "done\n"


def test_threads_make_the_first_init_together(client: Client, fake_ze: FakePlugin) -> None:
    """No lock is held while a driver starts, not even the first time."""
    drivers = fake_ze(at_init="meet_first()"), fake_ze(init_code="ZE_RESULT_ERROR_UNKNOWN")
    assert client(*drivers, words="first").out == "done\n"


def test_a_child_that_is_forked_during_the_start_starts_itself(
    client: Client, fake_ze: FakePlugin
) -> None:
    done = client(fake_ze(at_init="fork_once()"))
    assert (done.code, done.out) == (0, "Fake 0\n")


def test_programs_may_use_tools_and_sysman(client: Client, fake_ze: FakePlugin) -> None:
    """Sysman starts by itself. A driver without it hides no other."""
    more = f"{UNSUPPORTED} {NULL_HANDLE}\n"
    assert client(fake_ze(tools=1), words="tools").out == f"{UNINITIALIZED} 60 {more}"
    several = fake_ze(), fake_ze(tools=1), fake_ze(tools=1, name='"Two"')
    assert client(*several, words="tools").out == f"{UNINITIALIZED} 60 60 {more}"
    done = client(fake_ze(), words="tools")
    assert done.out == f"{UNINITIALIZED} zesInit: {UNINITIALIZED}\n"


def test_every_function_and_every_getter_is_exported() -> None:
    library = ctypes.CDLL(libze_loader.find_library())
    names = [name for functions in TOOLS.values() for name in functions]
    names += [function.name for function in ZE.slots] + [name_getter(table) for table in TABLES]
    names += [name_getter(t, prefix) for prefix, tables in ZE.other_tables.items() for t in tables]
    assert [name for name in names if not hasattr(library, name)] == []


def test_what_static_loaders_ask_for(run_python: RunPython, fake_ze: FakePlugin) -> None:
    code = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
assert library.zeLoaderInit() == 0
size = ctypes.c_size_t()
assert library.zelLoaderGetVersionsInternal(ctypes.byref(size), None) == 0 and size.value == 1
words = (ctypes.c_uint32 * 20)()
assert library.zelLoaderGetVersionsInternal(ctypes.byref(size), words) == 0
assert bytes(words)[:7] == b"loader\\0" and words[16] == 1 << 16 | 17 and words[17] == 1
assert library.zelLoaderDriverCheck(0, None, None, None, None, False) == 0
out = ctypes.c_void_p()
assert library.zelLoaderTranslateHandleInternal(0, ctypes.c_void_p(5), ctypes.byref(out)) == 0
assert out.value == 5
table = (ctypes.c_void_p * 64)()
for name in ("zesGetGlobalProcAddrTable", "zetGetDeviceProcAddrTable"):
    assert getattr(library, name)(1 << 16 | 17, table) == 0 and not any(table), name
assert library.zesGetGlobalProcAddrTable(1 << 16 | 18, table)
assert library.zelGetTracerApiProcAddrTable(1 << 16 | 17, table) == 0 and all(table[:5])
assert not any(table[5:]) and library.zelGetTracerApiProcAddrTable(1 << 16 | 18, table)
assert library.zesGetGlobalProcAddrTable(1 << 16 | 17, None)
calls = []
callback = ctypes.CFUNCTYPE(None)(lambda: None)
done, index = ctypes.c_void_p(), ctypes.c_uint32()
assert library.zelRegisterTeardownCallback(callback, ctypes.byref(done), ctypes.byref(index)) == 0
ctypes.CFUNCTYPE(None, ctypes.c_uint32)(done.value)(index)
assert not library.zelCheckIsLoaderInTearDown() & 1
"""
    run_python(code, libze_loader.find_library(), env={"ZE_ENABLE_ALT_DRIVERS": str(fake_ze())})


@pytest.mark.parametrize("drivers", [1, 2])
def test_functions_of_the_runtime_concern_the_first_driver(
    run_python: RunPython, fake_ze: FakePlugin, drivers: int
) -> None:
    code = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
find, text = library.zerTranslateIdentifierToDeviceHandle, ctypes.c_char_p()
find.restype = library.zerGetDefaultContext.restype = ctypes.c_void_p
assert find(0) is None and library.zerGetDefaultContext() is None
assert library.zerGetLastErrorDescription(ctypes.byref(text)) == 0x78000001  # UNINITIALIZED
assert library.zeInit(0) == 0
handles = [find(number) for number in range(3)]
assert handles[0] and handles[1] and handles[2] is None
ask = library.zerTranslateDeviceHandleToIdentifier
ask.restype = ctypes.c_uint32
assert [ask(ctypes.c_void_p(one)) for one in handles] == [0, 1, 2**32 - 1]
assert library.zerGetLastErrorDescription(None)
library.zerGetDefaultContext()
table = (ctypes.c_void_p * 8)()
assert library.zerGetGlobalProcAddrTable(1 << 16 | 17, table) == 0
assert all(table[:4]) and not any(table[4:])
assert library.zerGetGlobalProcAddrTable(1 << 16 | 18, table)
"""
    named = [str(fake_ze(devices=2)), str(fake_ze(name='"Two"'))][:drivers]
    env = {"ZE_ENABLE_ALT_DRIVERS": ",".join(named)}
    run_python(code, libze_loader.find_library(), env=env)


def test_the_null_driver_comes_first(client: Client, fake_ze: FakePlugin, tmp_path: Path) -> None:
    null = fake_ze(name='"Null"')
    (tmp_path / "libze_null.so.1").symlink_to(null)
    variables = {"ZE_ENABLE_NULL_DRIVER": "1", "LD_LIBRARY_PATH": str(tmp_path)}
    done = client(fake_ze(), **variables)
    assert (done.code, done.out) == (0, "Null 0\nFake 0\n"), done.err


def test_the_variables_put_it_in_front(tmp_path: Path) -> None:
    library, folder = libze_loader.find_library(), os.path.dirname(libze_loader.find_library())
    added = libze_loader.make_environment({"LD_PRELOAD": "x.so"}, ["/a.so", "/b,c.so"])
    assert added == {
        "ZEL_LIBRARY_PATH": folder,
        "LD_LIBRARY_PATH": folder,
        "LD_PRELOAD": f"{library}:x.so",
        "ZE_ENABLE_ALT_DRIVERS": "/a.so",
    }
    assert libze_loader.make_environment({}, [])["ZE_ENABLE_ALT_DRIVERS"] == ""
    assert "ZE_ENABLE_ALT_DRIVERS" not in libze_loader.make_environment({})
    named = libze_loader.make_environment({"ZE_ENABLE_ALT_DRIVERS": "own.so"}, ["/a.so"])
    assert "ZE_ENABLE_ALT_DRIVERS" not in named
