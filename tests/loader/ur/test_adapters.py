"""Open plugins: their answers, how they are closed, and those that lie or fail."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.support import FakePlugin, RunPython
from hypothesis import given
from hypothesis import strategies as st

from fairlead.loader.base.errors import FairleadError, LibraryError
from fairlead.loader.pi.abi import PI, PIError
from fairlead.loader.ur.abi import UR, URError
from fairlead.loader.ur.adapters import find_backend_library, load
from fairlead.loader.ur.binding import BindError
from fairlead.loader.ur.discovery import PluginCandidate
from fairlead.loader.ur.plugin import Plugin

FAILED = "UR_RESULT_ERROR_DEVICE_LOST"


def candidate(path: Path | str, interface: str = "UR", backend: str = "unknown") -> PluginCandidate:
    return PluginCandidate(str(path), "test", None, interface, backend)


@pytest.fixture(params=["UR", "PI"])
def opened(request: pytest.FixtureRequest, fake_plugin: FakePlugin) -> Plugin:
    """A plugin of each interface: two platforms, three devices each."""
    path = fake_plugin(interface=1 if request.param == "UR" else 2, platforms=2, devices=3)
    return load(candidate(path, request.param))


# What it answers


def test_platforms_and_devices(opened: Plugin) -> None:
    assert [platform.name for platform in opened.platforms] == ["Fake 0", "Fake 1"]
    assert opened.platforms[0].version == "1.2 fake" and opened.platforms[0].extensions == {
        "ur_fake",
        "ur_other",
    }
    assert [device.name for device in opened.devices] == [
        f"Fake device {number}" for number in (0, 1, 2)
    ] * 2
    device = opened.devices[4]
    assert (device.type, device.backend, device.driver_version) == ("gpu", "level_zero", "1.2.3")
    assert (
        device.platform is opened.platforms[1]
        and device.parent is None
        and opened.backend == "level_zero"
    )
    assert (opened.idle, opened.remedy, opened.notes, opened.warnings) == ("", "", (), ())
    assert opened.version == ("0.12" if opened.interface == "UR" else "15.47.1")


def test_sub_devices_have_their_parent(opened: Plugin) -> None:
    device = opened.devices[0]
    first, second = device.sub_devices()
    assert (
        first.parent is device
        and first.platform is device.platform
        and first.handle != second.handle
    )
    assert first.sub_devices() == ()  # the fake's parts cannot be divided
    assert device.sub_devices() is device.sub_devices()


def test_queries_by_whole_and_by_short_names(opened: Plugin) -> None:
    prefix = opened.interface
    device, platform = opened.devices[0], opened.platforms[0]
    assert device.info(f"{prefix}_DEVICE_INFO_NAME") == device.info("NAME") == "Fake device 0"
    assert device.info("MAX_COMPUTE_UNITS") == 7
    assert device.info("AVAILABLE") is True
    assert platform.info("PROFILE") == "FULL_PROFILE"
    with pytest.raises(FairleadError, match=r"is not a constant of (ur|pi)"):
        device.info("NO_SUCH_NAME")
    error = URError if prefix == "UR" else PIError
    with pytest.raises(error, match=f"{prefix}_DEVICE_INFO_LOCAL_MEM_SIZE") as caught:
        device.info("LOCAL_MEM_SIZE")
    assert caught.value.routine.endswith("DeviceGetInfo")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "word"),
    [("CPU", "cpu"), ("GPU", "gpu"), ("FPGA", "acc"), ("MCA", "acc"), ("DEFAULT", "unknown")],
)
def test_types_of_devices(fake_plugin: FakePlugin, name: str, word: str) -> None:
    found = load(candidate(fake_plugin(device_type=f"UR_DEVICE_TYPE_{name}"))).devices[0].type
    assert found == word


def test_the_backend_is_what_the_platform_says_else_what_the_name_tells(
    fake_plugin: FakePlugin,
) -> None:
    assert load(candidate(fake_plugin(backend="UR_BACKEND_CUDA"), backend="hip")).backend == "cuda"
    found = load(candidate(fake_plugin(backend="UR_BACKEND_UNKNOWN"), backend="hip")).backend
    assert found == "hip"
    assert load(candidate(fake_plugin(info_error=-30), backend="hip")).backend == "hip"
    assert load(candidate(fake_plugin(platforms=0), backend="hip")).backend == "hip"


def test_what_it_implements(fake_plugin: FakePlugin) -> None:
    plugin = load(candidate(fake_plugin(fill=0)))
    assert (
        plugin.has("urDeviceGet")
        and not plugin.has("urSamplerRetain")
        and not plugin.has("urNoSuchFunction")
    )
    assert UR.errors[plugin.table.urSamplerRetain(None)][0] == "UR_RESULT_ERROR_UNSUPPORTED_FEATURE"


def test_functions_beyond_the_table(fake_plugin: FakePlugin) -> None:
    plugin = load(candidate(fake_plugin()))
    assert plugin.extension("fake_teardowns") and plugin.extension("fake_no_such_symbol") is None


# Idle, lying and failing ones


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"platforms": 0}, "it has no platform: urPlatformGet gives none"),
        ({"adapters": 0}, "it has no platform: urPlatformGet gives none"),
        ({"adapter_error": FAILED}, f"it has no platform: urAdapterGet [{FAILED}]: "),
        ({"count_error": FAILED}, f"it has no platform: urPlatformGet [{FAILED}]: "),
    ],
)
def test_an_idle_adapter_says_why(
    fake_plugin: FakePlugin, knobs: dict[str, object], words: str
) -> None:
    plugin = load(candidate(fake_plugin(**knobs)))
    assert plugin.idle.startswith(words) and plugin.remedy and plugin.devices == ()
    plugin.close()
    assert plugin.warnings == ()


def test_an_idle_adapter_whose_driver_is_not_there(
    fake_plugin: FakePlugin, run_python: RunPython
) -> None:
    """Where no libcuda is. `find_library` is told so: the machine may have one."""
    code = """
import sys
from fairlead.loader.ur import adapters
from fairlead.loader.ur.discovery import PluginCandidate
adapters.find_library = lambda name: None
plugin = adapters.load(PluginCandidate(sys.argv[1], "test", None, "UR", "cuda"))
print(plugin.idle)
print(plugin.remedy)
"""
    idle, remedy = run_python(code, str(fake_plugin(platforms=0))).out.splitlines()
    assert idle == "it has no platform: libcuda.so.1 is not found (urPlatformGet gives none)"
    assert remedy == "install the NVIDIA driver"


def test_a_platform_without_devices(fake_plugin: FakePlugin) -> None:
    """urDeviceGet answers DEVICE_NOT_FOUND then."""
    plugin = load(candidate(fake_plugin(devices=0)))
    assert plugin.idle == "" and plugin.platforms[0].devices == ()


def test_a_platform_that_cannot_list_its_devices(fake_plugin: FakePlugin) -> None:
    plugin = load(candidate(fake_plugin(at_devices=f"return {FAILED}")))
    with pytest.raises(URError, match="urDeviceGet"):
        _ = plugin.devices


@pytest.mark.parametrize("count", ["1 << 20", "0xffffffff"])
def test_a_count_that_cannot_be_is_refused_and_the_library_closed(
    fake_plugin: FakePlugin, count: str, tmp_path: Path
) -> None:
    path = fake_plugin(count=f"({count})", name=f'"{tmp_path.name}"')
    with pytest.raises(FairleadError, match="it reports "):
        load(candidate(path))
    assert str(path) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("size", ["(size_t)-1", "1 << 30"])
def test_a_size_that_cannot_be(fake_plugin: FakePlugin, size: str) -> None:
    plugin = load(candidate(fake_plugin(name_size=f"({size})")))
    with pytest.raises(FairleadError, match="which is impossible"):
        _ = plugin.devices[0].name


@pytest.mark.parametrize("interface", ["UR", "PI"])
def test_a_library_that_is_no_plugin(fake_plugin: FakePlugin, interface: str) -> None:
    with pytest.raises(BindError, match="so it is neither"):
        load(candidate(fake_plugin(exports=-1, interface=1 if interface == "UR" else 2), interface))


@pytest.mark.parametrize(("is_", "wanted"), [("UR", "PI"), ("PI", "UR")])
def test_a_plugin_of_the_other_interface_is_refused_before_it_is_opened(
    fake_plugin: FakePlugin, is_: str, wanted: str
) -> None:
    library = fake_plugin(
        interface=1 if is_ == "UR" else 2, at_load="abort()"
    )  # opening it would end this process
    with pytest.raises(
        BindError,
        match=r"it is a (Unified Runtime adapter|PI plugin), not a (PI plugin|Unified Runtime "
        r"adapter)",
    ):
        load(candidate(library, wanted))


def test_a_loader_in_an_adapter_s_place_is_refused_before_it_is_opened(
    compile_c: Callable[..., Path], tmp_path: Path
) -> None:
    source = tmp_path / "loader.c"
    shown = '__attribute__((visibility("default")))'
    source.write_text(
        "#include <stdlib.h>\n"
        f"{shown} int urLoaderInit(void) {{ return 0; }}\n{shown} int "
        f"urGetAdapterProcAddrTable(void) {{ return 0; }}\n"
        "__attribute__((constructor)) static void loaded(void) { abort(); }\n"
    )
    with pytest.raises(BindError, match="it is the Unified Runtime loader itself"):
        load(candidate(compile_c(source, tmp_path / "libur_adapter_opencl.so.0")))


def test_a_file_that_is_not_there_and_one_that_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "notes.so").write_text("I am no library.\n")
    with pytest.raises(LibraryError, match="the file does not exist"):
        load(candidate(tmp_path / "gone.so"))
    with pytest.raises(LibraryError, match="text file"):
        load(candidate(tmp_path / "notes.so"))


def test_another_layout_than_the_one_asked_for(fake_plugin: FakePlugin) -> None:
    newest, other = list(UR.layouts)[:2]
    assert load(candidate(fake_plugin(layout=2)), layout=other).binding.layout == other
    with pytest.raises(BindError, match="layout"):
        load(candidate(fake_plugin(layout=2)), layout=newest)


def test_only_what_is_nowhere_is_called_missing(real_plugins: Path, run_python: RunPython) -> None:
    """The adapter needs five libraries; four of them are in the Python environment."""
    code = """
import sys
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.discovery import PluginCandidate
from fairlead.loader.base.errors import LibraryError
try:
    load(PluginCandidate(sys.argv[1], "test"))
except LibraryError as error:
    print(error.missing, error.message)
"""
    output = run_python(
        code,
        str(real_plugins / "ur-now/libur_adapter_level_zero.so.0"),
        env={"LD_LIBRARY_PATH": None},
    )
    assert output.out == "('libumf.so.1',) it needs libumf.so.1, which is not found\n"


# Surroundings


def test_the_environment_is_set_while_it_loads_and_then_as_before(
    fake_plugin: FakePlugin, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    before = dict(os.environ)
    plugin = load(
        candidate(fake_plugin(name='"Logged"')),
        environment={"FAKE_LOG": str(log), "XDG_CACHE_HOME": "elsewhere"},
    )
    assert log.read_text() == "load\n" and dict(os.environ) == before
    plugin.close()
    assert log.read_text() == "load\n"


@given(
    st.dictionaries(st.sampled_from(["FL_TEST_A", "FL_TEST_B", "HOME"]), st.text("ab/", max_size=3))
)
def test_any_environment_is_restored_after_a_failure(variables: dict[str, str]) -> None:
    before = dict(os.environ)
    with pytest.raises(LibraryError):
        load(candidate("/nowhere/libgone.so"), environment=variables)
    assert dict(os.environ) == before


def test_progress_is_told_before_each_step(fake_plugin: FakePlugin) -> None:
    steps: list[str] = []
    load(candidate(fake_plugin()), progress=steps.append)
    assert steps == [
        "reading what it exports",
        "opening the library",
        "binding its functions",
        "listing its platforms",
    ]


def test_the_library_of_a_backend() -> None:
    assert find_backend_library("level_zero") == "" or os.path.isabs(
        find_backend_library("level_zero")
    )
    assert find_backend_library("unknown") == ""


# Closing


def test_closing_takes_everything_down_in_order(
    fake_plugin: FakePlugin, run_python: RunPython, tmp_path: Path
) -> None:
    code = """
import sys
from pathlib import Path
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.discovery import PluginCandidate


def say(text):
    with open(sys.argv[3], "a") as file:
        print(text, file=file)


plugin = load(PluginCandidate(sys.argv[1], "test", None, sys.argv[2]))
table = plugin.table
plugin.on_close(lambda closing: say(f"first {len(closing.devices)}"))
plugin.on_close(lambda closing: say("second"))
plugin.close()
plugin.close()
print(plugin.closed, plugin.platforms, sys.argv[1] in Path("/proc/self/maps").read_text())
print(
    table.urAdapterGet(0, None, None)
    if sys.argv[2] == "UR"
    else table.piPlatformsGet(0, None, None)
)
"""
    for interface, released in (("UR", "adapter released"), ("PI", "piTearDown")):
        log = tmp_path / f"log-{interface}"
        path = fake_plugin(interface=1 if interface == "UR" else 2)
        output = run_python(code, str(path), interface, str(log), env={"FAKE_LOG": str(log)})
        closed, code_after = output.out.splitlines()
        assert closed == "True () False"
        api = UR if interface == "UR" else PI
        assert api.errors[int(code_after)][0].endswith("ERROR_UNINITIALIZED")
        assert log.read_text().splitlines() == ["load", "second", "first 1", released, "unload"]


def test_a_callback_that_fails_does_not_stop_the_rest(fake_plugin: FakePlugin) -> None:
    plugin = load(candidate(fake_plugin(interface=2), "PI"))
    told: list[str] = []

    def fail(plugin: Plugin) -> None:
        raise RuntimeError("mine")

    plugin.on_close(lambda plugin: told.append("last"))
    plugin.on_close(fail)
    with pytest.raises(RuntimeError, match="mine"):
        plugin.close()
    assert told == ["last"] and plugin.closed
    assert PI.errors[plugin.table.piPlatformsGet(0, None, None)][0] == "PI_ERROR_UNINITIALIZED"


@pytest.mark.parametrize(
    ("interface", "routine"), [("UR", "urAdapterRelease"), ("PI", "piTearDown")]
)
def test_an_error_while_closing_is_a_warning(
    fake_plugin: FakePlugin, interface: str, routine: str
) -> None:
    code = "UR_RESULT_ERROR_DEVICE_LOST" if interface == "UR" else "PI_ERROR_OUT_OF_RESOURCES"
    plugin = load(
        candidate(
            fake_plugin(interface=1 if interface == "UR" else 2, release_error=code), interface
        )
    )
    plugin.close()
    assert len(plugin.warnings) == 1 and plugin.warnings[0].startswith(f"{routine} [{code}]")


def test_a_real_pi_plugin_is_torn_down(real_plugins: Path, run_python: RunPython) -> None:
    """It writes to where piTearDown's argument points, and crashes if that is nowhere."""
    code = """
import sys
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.discovery import PluginCandidate
plugin = load(PluginCandidate(sys.argv[1], "test", None, "PI", "opencl"))
plugin.close()
print(plugin.closed, plugin.warnings)
"""
    assert run_python(code, str(real_plugins / "pi/libpi_opencl.so")).out == "True ()\n"


def test_repr_says_what_it_is(fake_plugin: FakePlugin) -> None:
    path = fake_plugin()
    plugin = load(candidate(path))
    assert repr(plugin) == f"<UR plugin {path}: 1 platform>"
    assert repr(plugin.platforms[0]) == "<UR platform 'Fake 0'>"
    assert repr(plugin.devices[0]) == "<UR device 'Fake device 0' (level_zero gpu)>"
    plugin.close()
    assert repr(plugin) == f"<UR plugin {path}: closed>"
