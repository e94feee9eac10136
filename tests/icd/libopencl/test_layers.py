"""Layers in front of the drivers, of both generations of the interface."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.support import ROOT, CompileC, FakeDriver, RunPython, once

from fairlead.icd import trace_layer
from fairlead.icd.trace_layer import read_processes

from .conftest import Client

#: Builds a variant of layer.c.
FakeLayer = Callable[..., Path]
START = "clInitLayerWithProperties 150"
COMMAND = "from fairlead.cli.main import main; main()"


@pytest.fixture(scope="module")
def layer(compile_c: CompileC, tmp_path_factory: pytest.TempPathFactory) -> FakeLayer:
    """`layer("one", entries=150)` is a layer that calls itself one."""

    def build(name: str, **knobs: int) -> Path:
        flags = [f"-D{knob.upper()}={value}" for knob, value in {**knobs}.items()]
        flags.append(f'-DLAYER="{name}"')
        key = hashlib.sha1(" ".join(flags).encode(), usedforsecurity=False).hexdigest()[:10]
        source = ROOT / "tests/icd/libopencl/layer.c"
        return once(
            tmp_path_factory, f"liblayer-{key}.so", lambda path: compile_c(source, path, *flags)
        )

    return build


def lines(
    client: Client, fake_driver: FakeDriver, *layers: Path, what: str = "names", **env: str
) -> list[str]:
    """What the layers said; the program works as without."""
    added = {"OPENCL_LAYERS": ":".join(map(str, layers)), **env}
    plain = client(what, drivers=[fake_driver()]).out
    output = client(what, drivers=[fake_driver()], env=added)
    assert output.out == plain
    return output.err.splitlines()


@pytest.mark.parametrize(
    ("generation", "start", "end"),
    [
        (1, ["one clInitLayer 150"], []),
        (2, [f"one {START}"], ["one clDeinitLayer"]),
        (3, [f"one {START}"], ["one clDeinitLayer"]),
    ],
)
def test_both_generations(
    client: Client,
    fake_driver: FakeDriver,
    layer: FakeLayer,
    generation: int,
    start: list[str],
    end: list[str],
) -> None:
    found = lines(client, fake_driver, layer("one", generation=generation))
    assert found == [*start, "one clGetPlatformIDs", *end]


def test_legacy_termination(client: Client, fake_driver: FakeDriver, layer: FakeLayer) -> None:
    legacy = {"OCL_ICD_FORCE_LEGACY_TERMINATION": "1"}
    found = lines(client, fake_driver, layer("one"), **legacy)
    assert found == ["one clInitLayer 150", "one clGetPlatformIDs"]
    found = lines(client, fake_driver, layer("one", generation=2), **legacy)
    assert found == [f"one {START}", "one clGetPlatformIDs"]


def test_the_last_layer_is_outermost(
    client: Client, fake_driver: FakeDriver, layer: FakeLayer, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.lay").write_text(f"{layer(name)}\n", encoding="utf-8")
    path = {"OPENCL_LAYER_PATH": str(tmp_path)}
    found = lines(client, fake_driver, layer("one"), layer("two"), **path)
    assert found[:4] == [f"{name} {START}" for name in ("a", "b", "one", "two")]
    inwards = ["two", "one", "b", "a"]
    assert found[4:8] == [f"{name} clGetPlatformIDs" for name in inwards]
    assert found[8:] == [f"{name} clDeinitLayer" for name in inwards]


def test_what_a_layer_s_table_lacks_is_that_of_the_next(
    client: Client, fake_driver: FakeDriver, layer: FakeLayer
) -> None:
    """A short table hides clFinish of that layer; NULL entries hide nothing."""
    short, whole = layer("short"), layer("whole", entries=150)
    found = lines(client, fake_driver, short, whole, what="use")
    assert found.count("whole clFinish") == 1 and "short clFinish" not in found
    assert found.count("short clGetPlatformIDs") == found.count("whole clGetPlatformIDs") == 1


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"api_version": 99}, "it is a layer of a version other than 100"),
        ({"code": -6}, "it failed to start"),
        ({"generation": 0}, "it is not a layer"),
    ],
)
def test_a_layer_that_cannot_start_is_left_out(
    client: Client, fake_driver: FakeDriver, layer: FakeLayer, knobs: dict[str, int], reason: str
) -> None:
    bad = layer("bad", **knobs)
    found = lines(client, fake_driver, bad, Path("/nowhere.so"), layer("one"))
    assert any(f"the OpenCL layer {bad} is left out: {reason}" in line for line in found)
    assert any("the OpenCL layer /nowhere.so is left out: " in line for line in found)
    assert "one clGetPlatformIDs" in found and "bad clGetPlatformIDs" not in found


def test_the_trace_layer(client: Client, fake_driver: FakeDriver, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    output = client("use", drivers=[fake_driver()], env=trace_layer.make_environment({}, folder))
    assert output.out == "0 -59 -59 1 -59 0 0\n"
    (process,) = read_processes(folder)
    assert [call.name for call in process.calls] == [
        "clGetPlatformIDs",
        "clGetDeviceIDs",
        "clCreateContext",
        "clCreateCommandQueue",
        "clSetCommandQueueProperty",
        "clGetKernelSuggestedLocalWorkSize",
        "clFinish",
        "clCreateSampler",
        "clReleaseCommandQueue",
        "clReleaseContext",
    ]


def test_fairlead_layers(run_python: RunPython, layer: FakeLayer, tmp_path: Path) -> None:
    one, two, old = layer("one"), layer("two", generation=1), layer("old", api_version=99)
    (tmp_path / "two.lay").write_text(f"{two}\n", encoding="utf-8")
    (tmp_path / "none.lay").write_text("", encoding="utf-8")
    env = {"OPENCL_LAYER_PATH": str(tmp_path), "OPENCL_LAYERS": f"{one}:/nowhere.so:{old}"}
    output = run_python(COMMAND, "layers", env=env)
    both = "clInitLayer clInitLayerWithProperties clDeinitLayer"
    assert output.out.splitlines() == [
        f"two | 100 | clInitLayer | {two}",
        f"one | 100 | {both} | {one}",
        f"old | 99 | {both} | {old}",
    ]
    assert "none.lay: names no library" in output.err and "/nowhere.so: " in output.err
    none = run_python(COMMAND, "layers")
    assert none.out == "" and "--own" in none.err
