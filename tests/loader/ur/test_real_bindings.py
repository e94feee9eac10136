"""Binding of real plugins, and what binding does to the process."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
from helpers.bindings import CODES, OPEN_REAL, adapter, plugin
from helpers.support import FakePlugin, RunPython

from fairlead.loader.base.abi import Api
from fairlead.loader.base.library import open_library
from fairlead.loader.base.query import query, query_handles
from fairlead.loader.pi.abi import PI
from fairlead.loader.ur.abi import UR, URError, check
from fairlead.loader.ur.binding import BindError, bind_adapter


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("ur-then/libur_adapter_opencl.so.0", "2025.3"),
        ("ur-then/libur_adapter_level_zero.so.0", "2025.3"),
        ("ur-then/libur_adapter_level_zero_v2.so.0", "2025.3"),
        ("ur-now/libur_adapter_level_zero.so.0", "2026.2"),
        ("ur-now/libur_adapter_level_zero_v2.so.0", "2026.2"),
    ],
)
def test_a_real_adapter_has_the_layout_of_its_release(
    real_plugins: Path, run_python: RunPython, name: str, layout: str
) -> None:
    code = """
binding = bind_adapter(library)
table, count = binding.table, ctypes.c_uint32()
print(binding.layout, [note for note in binding.notes if "complete" in note])
result = table.urAdapterGet(0, None, ctypes.byref(count))
platforms = 0
if count.value:
    handles = (ctypes.c_void_p * count.value)()
    assert table.urAdapterGet(count.value, handles, None) == 0
    result = table.urPlatformGet(handles[0], 0, None, ctypes.byref(count))
print(result, count.value)
try:
    bind_adapter(library, layout="2026.1")
except Exception as refused:
    print(type(refused).__name__)
"""
    layouts, calls, error = run_python(OPEN_REAL + code, str(real_plugins / name)).out.splitlines()
    assert layouts == f"{layout} []" and error == "BindError"
    result, count = map(int, calls.split())
    if (
        "level_zero" in name
    ):  # there is no Level Zero driver in a test machine of ours that has no GPU
        assert count == 0 and result != 0 and URError.describe(result)[0] in CODES
    else:
        assert result == 0


def test_the_real_plugin(real_plugins: Path, run_python: RunPython) -> None:
    """Its table has the order of pi.abi: each entry is the function that is exported under that
    name."""
    code = """
binding = bind_plugin(library)
print(binding.version, sorted(binding.missing), binding.notes)
exported = {f.name: library.find_symbol(f.name) for f in binding.table.api.slots}
print(sorted(name for name, address in exported.items() if not address))
print(
    [
        f.name
        for f in binding.table.api.slots
        if exported[f.name] not in (None, binding.table.get_pointer(f.slot))
    ]
)
"""
    lines = run_python(OPEN_REAL + code, str(real_plugins / "pi/libpi_opencl.so")).out.splitlines()
    assert lines[0] == "15.47.1 [] ()"
    assert (
        lines[1]
        == "['piextEnqueueDeviceGlobalVariableRead', 'piextEnqueueDeviceGlobalVariableWrite']"
    )
    assert lines[2] == "[]"


# What a plugin does to the process


@pytest.mark.parametrize("interface", [1, 2])
def test_a_plugin_that_ends_the_process_while_it_is_bound_does_so_nowhere_else(
    fake_plugin: FakePlugin, run_python: RunPython, interface: int
) -> None:
    """Opening and enumerating are not binding: `bind_…` calls only the functions that fill
    tables."""
    code = """
import sys
from fairlead.loader.ur.binding import bind_adapter, bind_plugin
from fairlead.loader.base.library import open_library
library = open_library(sys.argv[1])
print("opened", flush=True)
bind_adapter(library) if sys.argv[2] == "1" else bind_plugin(library)
print("bound", flush=True)
"""
    for knobs, out, end in (
        ({"at_load": "_exit(3)"}, "", 3),
        ({"at_init": "abort()"}, "opened\n", -6),
        (
            {"at_list": "abort()", "at_devices": "abort()", "at_teardown": "abort()"},
            "opened\nbound\n",
            0,
        ),
    ):
        output = run_python(
            code, str(fake_plugin(interface=interface, **knobs)), str(interface), check=False
        )
        assert (output.out, output.code) == (out, end)


@pytest.mark.parametrize(
    ("interface", "api", "names"),
    [
        (1, UR, ("urPlatformGet", "urDeviceGet", "urDevicePartition", "urDeviceGetInfo")),
        (2, PI, ("piPlatformsGet", "piDevicesGet", "piDevicePartition", "piDeviceGetInfo")),
    ],
)
def test_platforms_devices_and_parts_of_them(
    fake_plugin: FakePlugin, interface: int, api: Api, names: tuple[str, ...]
) -> None:
    path, prefix = fake_plugin(interface=interface, platforms=2, devices=3), names[0][:2].upper()
    table = (adapter(path) if api is UR else plugin(path)).table
    list_platforms, list_devices, divide, info = (getattr(table, name) for name in names)
    first = query_handles(table.urAdapterGet, "urAdapterGet", check) if api is UR else []
    platforms = query_handles(list_platforms, names[0], check, *first)
    devices = [
        query_handles(list_devices, names[1], check, one, api[f"{prefix}_DEVICE_TYPE_ALL"])
        for one in platforms
    ]
    assert [len(found) for found in devices] == [3, 3]
    parts = query_handles(divide, names[2], check, devices[1][2], (ctypes.c_ssize_t * 3)(1, 0, 0))
    parent = query(info, names[3], check, parts[0], api[f"{prefix}_DEVICE_INFO_PARENT_DEVICE"])
    assert len(parts) == 2 and int.from_bytes(parent, "little") == devices[1][2]


def test_a_getter_of_a_library_that_it_needs_is_not_its_own(
    fake_plugin: FakePlugin, tmp_path: Path
) -> None:
    """dlsym searches dependencies as well: an adapter linked with the loader would be bound to the
    loader."""
    whole = fake_plugin()
    (tmp_path / "libwhole.so").symlink_to(whole)
    source = tmp_path / "needy.c"
    source.write_text("int it(void) { return 0; }\n")
    needy = tmp_path / "libneedy.so"
    command = [
        "cc",
        "-shared",
        "-fPIC",
        str(source),
        "-o",
        str(needy),
        "-Wl,--no-as-needed",
        f"-L{tmp_path}",
        "-lwhole",
    ]
    subprocess.run([*command, f"-Wl,-rpath,{tmp_path}", f"-Wl,-rpath,{whole.parent}"], check=True)
    library = open_library(str(needy))
    assert (
        library.find_symbol("urGetAdapterProcAddrTable")
        and library.find_own_symbol("urGetAdapterProcAddrTable") is None
    )
    with pytest.raises(BindError, match="so it is not a Unified Runtime adapter"):
        bind_adapter(library)
