"""The tracing layer of libze_loader.so.1, with the vendor's headers and a tool that uses them."""

from __future__ import annotations

import ctypes
import os
import re
import runpy
import subprocess
from collections.abc import Iterator
from pathlib import Path

from helpers.support import ROOT, FakePlugin, RunPython

from fairlead.loader.ze import libze_loader
from fairlead.loader.ze.abi import ZE

BUILD = ROOT / "loader/ze/libze_loader/native/build.py"

#: The functions of the runtime.
RUNTIME = runpy.run_path(str(BUILD))["read_tools"]()["zerGetGlobalProcAddrTable"]

TRACED = """\
zeInit(0) begins: 0
zeInit(0) ends: 0, data
zeDriverGet begins: 4
zeVirtualMemQueryPageSize(77) ends: 0x78000003
zeDriverGetExtensionFunctionAddress(none) ends: 0x78000003
1 driver, tracing layer
"""


def test_a_tool_sees_and_changes_calls(
    ze_headers: Path, fake_ze: FakePlugin, tmp_path: Path
) -> None:
    library, program = libze_loader.find_library(), tmp_path / "tracer"
    source = ROOT / "tests/loader/ze/libze/tracer.c"
    command = ["cc", "-std=gnu11", "-O1", f"-I{ze_headers}", source, "-o", program, library]
    subprocess.run([*command, f"-Wl,-rpath,{os.path.dirname(library)}"], check=True)
    two = fake_ze(name='"Two"')
    drivers = f"{fake_ze()},{two}"
    for layer, expected in (("1", TRACED), ("0", "zelTracerCreate: 0x78000001\n")):
        env = {"ZE_ENABLE_ALT_DRIVERS": drivers, "ZE_ENABLE_TRACING_LAYER": layer}
        done = subprocess.run([program], env={**os.environ, **env}, capture_output=True, text=True)
        assert done.stdout == expected
        assert done.returncode == (layer != "1")


def _structs(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the names of a header's structs, and those of their fields."""
    for name, body in re.findall(r"typedef struct _(\w+)\s*\{(.*?)\}", text, re.DOTALL):
        yield name, re.findall(r"(\w+)\s*;", body)


def test_callbacks_have_the_places_and_the_parameters_of_the_headers(ze_headers: Path) -> None:
    """Headers of later versions keep the struct of version 1.0."""
    folder = ze_headers / "level_zero"
    core = (folder / "ze_api.h").read_text(encoding="utf-8")
    registered = (folder / "layers/zel_tracing_register_cb.h").read_text(encoding="utf-8")
    structs = {**dict(_structs(core)), **dict(_structs(registered))}
    (members,) = re.findall(r"typedef struct _ze_callbacks_t\s*\{(.*?)\}", core, re.DOTALL)
    build = runpy.run_path(str(BUILD))
    places = [
        f"ze{'' if table == 'Global' else table}{field[3:-2]}"
        for struct, table in re.findall(r"(\w+)\s+(\w+);", members)
        for field in structs[struct]
    ]
    assert [function.name for function in build["list_callbacks"](ZE)] == places
    shapes = {fields: name for name, fields in _parameters(structs)}
    assert len(shapes) > 50
    ours = {
        tuple(f"p{parameter.name}" for parameter in function.parameters) for function in ZE.slots
    }
    assert {fields: name for fields, name in shapes.items() if fields not in ours} == {}


def _parameters(structs: dict[str, list[str]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, fields in structs.items():
        if name.endswith("_params_t") and not name.startswith("zer_") and "_cb_params" not in name:
            yield name, tuple(fields)


def test_what_registers_callbacks_is_exported(ze_headers: Path) -> None:
    library = ctypes.CDLL(libze_loader.find_library())
    header = ze_headers / "level_zero/layers/zel_tracing_register_cb.h"
    names = set(re.findall(r"\bzelTracer\w+", header.read_text(encoding="utf-8")))
    names |= {f"zelTracer{function.name[2:]}RegisterCallback" for function in ZE.slots}
    names |= {f"zelTracer{name[3:]}RegisterCallback" for name in RUNTIME}
    assert sorted(name for name in names if not hasattr(library, name)) == []


def test_a_tracer_needs_no_user_data(run_python: RunPython, fake_ze: FakePlugin) -> None:
    """The variable counts at the first init, too. Callbacks get what a function returns."""
    code = """
import ctypes, os, sys

library = ctypes.CDLL(sys.argv[1])
tracer, desc = ctypes.c_void_p(), (ctypes.c_uint64 * 3)(1)
assert library.zelTracerCreate(desc, ctypes.byref(tracer)) == 0x78000001  # UNINITIALIZED
os.environ["ZE_ENABLE_TRACING_LAYER"] = "1"
assert library.zeInit(0) == 0
assert library.zelTracerCreate(desc, ctypes.byref(tracer)) == 0
seen = []
kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p)
callback = kind(lambda params, result, data, own: seen.append((result, data)))
names = "TranslateDeviceHandleToIdentifier", "TranslateIdentifierToDeviceHandle", "DriverGet"
for name in names:
    register = getattr(library, f"zelTracer{name}RegisterCallback")
    assert register(tracer, 1, callback) == 0
assert library.zelTracerSetEnabled(tracer, 1) == 0
find, count = library.zerTranslateIdentifierToDeviceHandle, ctypes.c_uint32()
find.restype = ctypes.c_void_p
device = find(0)
assert library.zerTranslateDeviceHandleToIdentifier(ctypes.c_void_p(device)) == 0
assert library.zeDriverGet(ctypes.byref(count), None) == 0
assert seen == [(device, None), (0, None), (0, None)], seen
"""
    env = {"ZE_ENABLE_ALT_DRIVERS": str(fake_ze())}
    run_python(code, libze_loader.find_library(), env=env)


def test_the_layer_comes_and_goes_at_run_time(run_python: RunPython) -> None:
    code = """
import ctypes, sys

library = ctypes.CDLL(sys.argv[1])
state = ctypes.c_bool()


def states():
    assert library.zelGetTracingLayerState(ctypes.byref(state)) == 0
    return state.value


print(
    states(), library.zelEnableTracingLayer(), states(), library.zelDisableTracingLayer(), states()
)
"""
    path = libze_loader.find_library()
    assert run_python(code, path).out == "False 0 True 0 False\n"
    found = run_python(code, path, env={"ZE_ENABLE_TRACING_LAYER": "1"}).out
    assert found == "True 0 True 0 True\n"
