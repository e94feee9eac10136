"""All adapters and plugins: what is opened, skipped and why, selected, and printed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.support import FakePlugin, RunPython, with_short_limit

from fairlead.loader.base.errors import FairleadError, NotFoundError
from fairlead.loader.ur.plugins import Plugins, open_plugins, read_selector
from fairlead.loader.ur.selector import parse
from fairlead.loader.ur.selector_grammar import SelectorError

pytestmark = pytest.mark.slow


def forced(*paths: Path | str, **variables: str) -> dict[str, str]:
    """An environment in which these adapters are the only ones."""
    return {"UR_ADAPTERS_FORCE_LOAD": ",".join(map(str, paths)), **variables}


def names(plugins: Plugins) -> list[str]:
    return [plugin.path.rsplit("/", 1)[-1] for plugin in plugins]


@pytest.fixture(scope="session")
def two(fake_plugin: FakePlugin) -> list[Path]:
    """An adapter for Level Zero with two devices, and one for OpenCL with two platforms, a CPU
    each."""
    opencl = fake_plugin(
        backend="UR_BACKEND_OPENCL", platforms=2, device_type="UR_DEVICE_TYPE_CPU", name='"Open"'
    )
    return [fake_plugin(devices=2), opencl]


# Opening


def test_all_of_them_in_the_order_of_the_search(two: list[Path]) -> None:
    with open_plugins("UR", forced(*two)) as plugins:
        assert [plugin.path for plugin in plugins] == [str(path) for path in two] and len(
            plugins
        ) == 2
        assert [platform.name for platform in plugins.platforms] == ["Fake 0", "Open 0", "Open 1"]
        assert len(plugins.devices) == 4 and plugins.selector is None
        assert plugins.refusals == () and plugins.failures == ()
        assert plugins.select() == plugins.devices
        opened = plugins.plugins
    assert all(plugin.closed for plugin in opened) and plugins.closed and len(plugins) == 0


def test_pi_plugins_by_their_override(fake_plugin: FakePlugin) -> None:
    environ = {"SYCL_OVERRIDE_PI_CUDA": str(fake_plugin(interface=2))}
    with open_plugins("PI", environ) as plugins:
        assert plugins.interface == "PI" and [plugin.version for plugin in plugins] == ["15.47.1"]
        assert plugins.devices[0].name == "Fake device 0"


def test_what_fails_is_a_refusal_and_the_others_are_opened(
    fake_plugin: FakePlugin, two: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "libnotes.so").write_text("I am no library.\n")
    bad = {
        fake_plugin(at_load="abort()"): "it crashed with SIGABRT while opening the library",
        fake_plugin(exports=-1): "so it is neither a Unified Runtime adapter",
        fake_plugin(count="(1 << 20)"): "urPlatformGet: it reports 1048576 handles",
        tmp_path / "libnotes.so": "it is a text file, not a shared library",
        tmp_path / "libgone.so": "does not exist",
    }
    with open_plugins("UR", forced(*bad, *two)) as plugins:
        assert [plugin.path for plugin in plugins] == [str(path) for path in two]
        refused = {refusal.what: refusal for refusal in plugins.refusals}
        assert set(refused) == {str(path) for path in bad}
        for path, words in bad.items():
            assert (
                words in refused[str(path)].reason
                and refused[str(path)].found_via == "UR_ADAPTERS_FORCE_LOAD"
            )
        assert sum(str(tmp_path / "libgone.so") in reason for reason in plugins.reasons) == 1


HOSTILE_UR: list[tuple[dict[str, object], str]] = [
    ({"version": "0x0b"}, "UR_RESULT_ERROR_UNSUPPORTED_VERSION|refuses to fill its table"),
    ({"getter_error": "UR_RESULT_ERROR_UNKNOWN"}, "refuses to fill its table Kernel"),
    ({"written": "length / 2"}, "its tables"),
    ({"written": "length + 3"}, "its tables have a layout that is not known"),
    ({"nulls": 1}, "it has no urAdapterGet"),
    ({"at_init": "abort()"}, "it crashed with SIGABRT while binding its functions"),
    ({"at_init": "hang()"}, "while binding its functions"),
    ({"at_list": "exit(3)"}, "it ended the process with exit code 3 while listing its platforms"),
    ({"wild": "urPlatformGet"}, "it crashed with SIG"),
    ({"exports": -1}, "so it is neither a Unified Runtime adapter nor a PI plugin"),
]
HOSTILE_PI: list[tuple[dict[str, object], str]] = [
    ({"getter_error": "PI_ERROR_INVALID_OPERATION"}, "it refuses PI 15.47"),
    ({"plugin_version": '"11.15.1"'}, "it speaks PI 11.15.1"),
    ({"nulls": 1, "exports": 0}, "piPluginInit"),
    ({"at_init": "abort()"}, "it crashed with SIGABRT while binding its functions"),
    ({"at_init": "hang()"}, "while binding its functions"),
    ({"at_load": "abort()"}, "it crashed with SIGABRT while opening the library"),
    ({"exports": -1}, "so it is neither a Unified Runtime adapter nor a PI plugin"),
]


@pytest.mark.parametrize(
    ("interface", "knobs", "words"),
    [
        *(("UR", knobs, words) for knobs, words in HOSTILE_UR),
        *(("PI", knobs, words) for knobs, words in HOSTILE_PI),
    ],
)
def test_a_hostile_plugin_is_refused_with_the_reason(
    fake_plugin: FakePlugin,
    interface: str,
    knobs: dict[str, object],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = fake_plugin(interface=1 if interface == "UR" else 2, **knobs)
    environ = forced(path) if interface == "UR" else {"SYCL_OVERRIDE_PI_CUDA": str(path)}

    def reason() -> str:
        with open_plugins(interface, environ) as plugins:
            assert len(plugins) == 0
            (refusal,) = [refusal for refusal in plugins.refusals if refusal.what == str(path)]
            assert refusal.remedy
            return refusal.reason

    def check(limit: int) -> None:
        monkeypatch.setenv("FAIRLEAD_PROBE_TIMEOUT", str(limit))
        assert re.search(f"within {limit} s {words}", reason())

    if "hang()" in knobs.values():
        with_short_limit(check)
    else:
        assert re.search(words, reason())


def hostile_files(library: Path, folder: Path) -> dict[Path, str]:
    """What may lie where an adapter should be, and what is said of it."""
    (folder / "text.so").write_text("I am no library.\n")
    (folder / "directory.so").mkdir()
    content = library.read_bytes()
    (folder / "narrow.so").write_bytes(content[:4] + b"\x01" + content[5:])
    (folder / "half.so").write_bytes(content[: len(content) // 2])
    needed = folder / "libneeded_by_it.so"
    for source, target, flags in (
        ("int it(void) { return 1; }", needed, ()),
        (
            'int it(void); __attribute__((visibility("default"))) int '
            "urGetAdapterProcAddrTable(void) { return it(); }",
            folder / "needy.so",
            (f"-L{folder}", "-lneeded_by_it"),
        ),
    ):
        (folder / "source.c").write_text(source)
        subprocess.run(
            ["cc", "-shared", "-fPIC", str(folder / "source.c"), "-o", str(target), *flags],
            check=True,
        )
    needed.unlink()
    old = folder / "libur_adapter_old.so.0.11.0"
    shutil.copy(library, old)
    return {
        folder / "text.so": "it is a text file, not a shared library",
        folder / "directory.so": "directory",
        folder / "narrow.so": "it is a 32-bit library for x86-64, and this is a 64-bit process",
        folder / "half.so": "the file is truncated",
        folder / "needy.so": "it needs libneeded_by_it.so, which is not found",
        old: "it is an adapter of Unified Runtime 0.11",
    }


def test_a_file_that_is_no_adapter_for_us_is_refused_with_the_reason(
    fake_plugin: FakePlugin, tmp_path: Path
) -> None:
    bad = hostile_files(fake_plugin(), tmp_path)
    with open_plugins("UR", forced(*bad, fake_plugin())) as plugins:
        assert len(plugins) == 1
        reasons = {refusal.what: refusal.reason for refusal in plugins.refusals}
        for path, words in bad.items():
            assert words in reasons[str(path)]


def test_what_failed_is_remembered(
    fake_plugin: FakePlugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # else other workers write verdicts, too
    environ = forced(fake_plugin(at_init="abort()", at_list="abort()"))
    reasons = [open_plugins("UR", environ).refusals[0].reason for _ in range(2)]
    assert (
        "remembered" not in reasons[0]
        and "(remembered; `fairlead doctor` tries it again)" in reasons[1]
    )


def test_without_a_probe_a_bad_one_is_refused_by_itself(
    fake_plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_PROBE", "0")
    (refusal,) = open_plugins(
        "UR", forced(fake_plugin(getter_error="UR_RESULT_ERROR_UNKNOWN"))
    ).refusals
    assert refusal.reason.startswith(
        "urGetKernelProcAddrTable: it refuses to fill its table Kernel"
    )


def test_fairlead_exclude(two: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_EXCLUDE", two[0].name)
    plugins = open_plugins("UR", forced(*two))
    assert names(plugins) == [two[1].name]
    (refusal,) = plugins.refusals
    assert (
        refusal.reason == f"excluded by FAIRLEAD_EXCLUDE ({two[0].name})"
        and refusal.remedy == "change FAIRLEAD_EXCLUDE"
    )


def test_an_idle_adapter_stays_open_and_says_why(fake_plugin: FakePlugin) -> None:
    plugins = open_plugins("UR", forced(fake_plugin(platforms=0)))
    assert len(plugins) == 1 and plugins.devices == ()
    assert any("it has no platform" in reason for reason in plugins.reasons)


def test_a_platform_that_fails_does_not_take_the_others_devices_along(
    fake_plugin: FakePlugin, two: list[Path]
) -> None:
    bad = [
        fake_plugin(at_devices="return UR_RESULT_ERROR_DEVICE_LOST"),
        fake_plugin(info_error="UR_RESULT_ERROR_UNKNOWN"),
    ]
    with open_plugins("UR", forced(*bad, *two)) as plugins:
        assert len(plugins) == 4 and len(plugins.devices) == 4
        first, second = plugins.failures
        assert "urDeviceGet [UR_RESULT_ERROR_DEVICE_LOST]" in first and str(bad[0]) in first
        assert "urDeviceGetInfo [UR_RESULT_ERROR_UNKNOWN]" in second and str(bad[1]) in second
        assert set(plugins.failures) <= set(plugins.reasons)


# Selecting


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("*:*", ["level_zero", "level_zero", "opencl", "opencl"]),
        ("opencl:1", ["opencl"]),
        ("*:gpu", ["level_zero", "level_zero"]),
        ("!level_zero:1", ["level_zero"]),
    ],
)
def test_a_selector_picks_devices(two: list[Path], selector: str, expected: list[str]) -> None:
    with open_plugins("UR", forced(*two, ONEAPI_DEVICE_SELECTOR=selector)) as plugins:
        assert [device.backend for device in plugins.select()] == expected
        assert (
            plugins.select(parse("opencl:0"))[0].platform.name == "Open 0"
        )  # another one than the environment's


def test_sub_devices_are_selected_in_place_of_their_parent(two: list[Path]) -> None:
    with open_plugins("UR", forced(*two, ONEAPI_DEVICE_SELECTOR="level_zero:1.*")) as plugins:
        first, second = plugins.select()
        assert first.parent is second.parent is plugins.devices[1]


def test_a_selector_that_leaves_nothing_names_what_there_is(two: list[Path]) -> None:
    with open_plugins("UR", forced(*two, ONEAPI_DEVICE_SELECTOR="cuda:*")) as plugins:
        with pytest.raises(NotFoundError, match="the device selector leaves no device") as caught:
            plugins.select()
        error = caught.value
        assert (
            error.code == "UR_RESULT_ERROR_DEVICE_NOT_FOUND" and "fairlead devices" in error.remedy
        )
        assert "ONEAPI_DEVICE_SELECTOR=cuda:* selects none of the devices" in error.reasons
        assert "opencl:1 is Open device 0" in error.reasons


def test_no_device_at_all() -> None:
    with pytest.raises(NotFoundError, match="no device can be used") as caught:
        open_plugins(
            "PI",
            {"SYCL_OVERRIDE_PI_OPENCL": "/nowhere/libpi.so", "ONEAPI_DEVICE_SELECTOR": "opencl:*"},
        ).select()
    assert (
        caught.value.code == "PI_ERROR_DEVICE_NOT_FOUND"
        and "fairlead doctor" in caught.value.remedy
    )
    assert any(
        reason.startswith("/nowhere/libpi.so: the file does not exist")
        for reason in caught.value.reasons
    )
    assert not any("selects none of" in reason for reason in caught.value.reasons)


def test_a_backend_that_cannot_be_selected_is_not_opened(
    fake_plugin: FakePlugin, tmp_path: Path
) -> None:
    (tmp_path / "libur_adapter_cuda.so.0").symlink_to(fake_plugin(backend="UR_BACKEND_CUDA"))
    environ = {"UR_ADAPTERS_SEARCH_PATH": str(tmp_path), "ONEAPI_DEVICE_SELECTOR": "!cuda:*"}

    def is_open(environ: dict[str, str]) -> bool:
        plugins = open_plugins("UR", environ)
        return any(plugin.candidate.library.startswith(str(tmp_path)) for plugin in plugins)

    assert not is_open(environ)
    refusals = open_plugins("UR", environ).refusals
    assert any(
        "left out by ONEAPI_DEVICE_SELECTOR=!cuda:*" in refusal.reason for refusal in refusals
    )
    assert is_open(environ | {"UR_LOADER_PRELOAD_FILTER": "0"}) and is_open(
        environ | {"ONEAPI_DEVICE_SELECTOR": "cuda:0"}
    )


def test_a_selector_that_cannot_be_understood_is_an_error() -> None:
    with pytest.raises(SelectorError, match="is not a backend"):
        open_plugins("UR", {"ONEAPI_DEVICE_SELECTOR": "nothing:*"})


def test_the_selector_of_the_environment() -> None:
    assert read_selector({}) is None
    assert str(read_selector({"SYCL_BE": "PI_LEVEL_ZERO"})) == "level_zero:*"


def test_unused_plugins_are_closed(two: list[Path]) -> None:
    with open_plugins("UR", forced(*two, ONEAPI_DEVICE_SELECTOR="opencl:*")) as plugins:
        (closed,) = plugins.unload_unused()
        assert closed.closed and closed.path == str(two[0]) and names(plugins) == [two[1].name]
        assert plugins.unload_unused() == ()
    with open_plugins("UR", forced(*two)) as plugins:
        assert plugins.unload_unused() == ()
        (closed,) = plugins.unload_unused(plugins.devices[:1])
        assert closed.path == str(two[1])


# What can be followed

OPEN = """
from fairlead.loader.ur.plugins import open_plugins
import sys
with open_plugins(sys.argv[1]) as plugins:
    plugins.select()
"""


def test_the_log_of_the_loader(run_python: RunPython, two: list[Path]) -> None:
    quiet = run_python(OPEN, "UR", env=forced(*two))
    assert (quiet.out, quiet.err) == ("", "")
    env = forced("/nowhere/libgone.so", *two, UR_LOG_LOADER="level:info;output:stdout")
    lines = run_python(OPEN, "UR", env=env).out.splitlines()
    assert all(line.startswith("<LOADER>[INFO]: ") for line in lines)
    assert any("/nowhere/libgone.so: does not exist" in line for line in lines)
    loaded = [
        re.fullmatch(r"<LOADER>\[INFO\]: loaded adapter 0x[0-9a-f]+ \((.*)\), 0\.12", line)
        for line in lines
    ]
    assert [match[1] for match in loaded if match] == [str(path) for path in two]
    debug = run_python(OPEN, "UR", env=env | {"UR_LOG_LOADER": "level:debug;output:stdout"}).out
    assert "<LOADER>[DEBUG]: adapters: Python prefix: not searched" in debug


def test_the_trace_of_the_dpcpp_runtime(run_python: RunPython, fake_plugin: FakePlugin) -> None:
    path, bad = fake_plugin(interface=2), fake_plugin(interface=2, at_init="abort()")
    env = {"SYCL_OVERRIDE_PI_LEVEL_ZERO": str(path), "SYCL_OVERRIDE_PI_CUDA": str(bad)}
    loaded = (
        f"SYCL_PI_TRACE[basic]: Plugin found and successfully loaded: {path.name} [ "
        "PluginVersion: 15.47.1 ]"
    )
    chosen = "SYCL_PI_TRACE[basic]: Selected device:\n  platform: Fake 0\n  device: Fake device 0"
    assert run_python(OPEN, "PI", env=env | {"SYCL_PI_TRACE": "1"}).err == f"{loaded}\n{chosen}\n"
    everything = run_python(OPEN, "PI", env=env | {"SYCL_PI_TRACE": "-1"}).err
    assert loaded in everything
    found = f"SYCL_PI_TRACE[all]: Check if plugin is present. Failed to load plugin: {bad}"
    assert found in everything
    assert "SYCL_PI_TRACE[-1]: " in everything and "it crashed with SIGABRT" in everything
    assert chosen in everything
    assert run_python(OPEN, "PI", env=env).err == ""


# Closing and failing


def test_a_file_that_cannot_be_opened_gives_way_to_the_next_of_its_name(
    fake_plugin: FakePlugin, tmp_path: Path
) -> None:
    bad, good, name = fake_plugin(at_init="abort()"), fake_plugin(), "libur_adapter_level_zero.so.0"
    for folder, library in (("one", bad), ("two", good)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).symlink_to(library)
    environ = {"UR_ADAPTERS_SEARCH_PATH": f"{tmp_path / 'one'},{tmp_path / 'two'}"}
    with open_plugins("UR", environ) as plugins:
        assert [plugin.path for plugin in plugins] == [str(good)]
        assert any(
            "SIGABRT" in refusal.reason
            for refusal in plugins.refusals
            if refusal.what == str(tmp_path / "one" / name)
        )


def test_a_callback_that_fails_does_not_leave_the_others_open(two: list[Path]) -> None:
    plugins = open_plugins("UR", forced(*two))
    opened = plugins.plugins
    opened[1].on_close(lambda plugin: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        plugins.close()
    assert all(plugin.closed for plugin in opened) and plugins.closed
    with pytest.raises(FairleadError, match="these adapters are closed"):
        plugins.select()


def test_where_the_selector_picks_nothing_all_are_unused(two: list[Path]) -> None:
    plugins = open_plugins("UR", forced(*two), selector=parse("opencl:99"))
    assert len(plugins.unload_unused()) == 2 and len(plugins) == 0


def test_what_is_open_at_the_end_is_released_and_its_callbacks_are_told(
    run_python: RunPython, fake_plugin: FakePlugin, tmp_path: Path
) -> None:
    code = """
import atexit, os, sys
from fairlead.loader.ur.plugins import open_plugins

plugins = open_plugins("UR", {"UR_ADAPTERS_FORCE_LOAD": sys.argv[1]})
plugins.plugins[0].on_close(
    lambda plugin: print("told", plugin.closed, len(plugins.devices), flush=True)
)
if len(sys.argv) > 2:
    atexit.register(plugins.close)
if not os.fork():
    sys.exit()
os.wait()
"""
    log = tmp_path / "log"
    for more in ((), ("close",)):
        log.write_text("")
        done = run_python(
            code, str(fake_plugin()), *more, env={"FAKE_LOG": str(log), "FAIRLEAD_PROBE": "0"}
        )
        assert done.out.splitlines()[-1].startswith("told") and done.err == ""
        assert log.read_text().count("release") >= 1


def test_sycl_ur_trace_1_tells_what_is_found(
    run_python: RunPython, fake_plugin: FakePlugin
) -> None:
    env = {"UR_ADAPTERS_FORCE_LOAD": str(fake_plugin())}
    found = "<LOADER>[INFO]: loaded adapter"
    assert found in run_python(OPEN, "UR", env=env | {"SYCL_UR_TRACE": "1"}).err
    assert run_python(OPEN, "UR", env=env).err == ""


@pytest.mark.parametrize("value", ["x", "", "-1"])
def test_no_value_of_sycl_pi_trace_ends_the_process(
    run_python: RunPython, real_plugins: Path, value: str
) -> None:
    """DPC++'s own plugins read it too, and abort if it is not a number."""
    env = {
        "SYCL_OVERRIDE_PI_OPENCL": str(real_plugins / "pi/libpi_opencl.so"),
        "SYCL_PI_TRACE": value,
    }
    done = run_python(OPEN, "PI", env=env, check=False)
    assert "invalid_argument" not in done.err and done.code in (0, 1)


def test_what_leaks_is_reported_at_the_end_though_nothing_was_closed(
    run_python: RunPython, fake_plugin: FakePlugin
) -> None:
    code = """
import ctypes, sys
from fairlead.loader.ur.plugins import open_plugins
plugins = open_plugins("UR", {"UR_ADAPTERS_FORCE_LOAD": sys.argv[1]})
device, context = plugins.devices[0], ctypes.c_void_p()
handles = (ctypes.c_void_p * 1)(device.handle)
device.platform.plugin.table.urContextCreate(1, handles, None, ctypes.byref(context))
"""
    done = run_python(code, str(fake_plugin()), env={"UR_ENABLE_LAYERS": "UR_LAYER_LEAK_CHECKING"})
    leaks = [line for line in done.err.splitlines() if "has leaked" in line]
    assert len(leaks) == 1 and "ur_context_handle_t" in leaks[0], (
        "the devices that were listed are released"
    )
