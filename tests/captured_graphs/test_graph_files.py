"""Graphs as files: what is loaded does what was saved, on every driver."""

from __future__ import annotations

import gc
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from helpers.captures import SOURCE, Numbers
from pyopencl.clrandom import PhiloxGenerator

import fairlead
from fairlead.captured_graphs.pyopencl_client import ArgumentError
from fairlead.graph_files import devices, programs, queries
from fairlead.graph_files.archive import GraphArchive
from fairlead.icd.calls import query_program
from fairlead.icd.command_buffer.direct_trust import why_not_device
from fairlead.runtime import SYCLError

#: PyOpenCL's types do not know all of its own arguments.
copy: Any = cl.enqueue_copy
local: Any = cl.LocalMemory

LOCAL = """
kernel void shared_sum(global const int *from, global int *to, local int *tile, int scale) {
    int i = get_local_id(0), n = get_local_size(0);
    tile[i] = from[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    to[get_global_id(0)] = scale * (tile[i] + tile[n - 1 - i]);
}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "step.flg"


@pytest.fixture
def numbers(queue: cl.CommandQueue) -> Numbers:
    """Numbers whose kernels are of a source, because the driver has to know it."""
    return Numbers(queue, cl.Program(queue.context, SOURCE).build())


def test_what_is_loaded_computes_what_was_saved(
    numbers: Numbers, file: Path, device: cl.Device
) -> None:
    by, a, host = fairlead.Parameter(np.int32(2)), numbers.buffer, numbers.host
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(by)
        numbers.mul(3)
        numbers.add(-by)
        copy(numbers.queue, host, a, is_blocking=False)
    graph.save(file, names={"a": a, "host": host})
    loaded = fairlead.load(file, device)
    assert list(loaded.edges) == list(graph.edges) and not loaded.empty()
    assert [node.label for node in loaded] == [node.label for node in graph]
    assert loaded.inputs == ("a",) and loaded.outputs == ("a", "host")
    loop = loaded.finalize()
    assert loop.parameters == ("by",)
    start = np.full(64, 10, np.int32)
    out = loop(a=start.view(np.uint8))
    assert (out["a"].view(np.int32) == 34).all() and (out["host"] == 34).all()
    assert (loop(by=1)["host"] == 3 * 35 - 1).all()
    assert host[0] == 0, "the program's own memory is not touched"


def test_it_is_loaded_on_the_device_that_it_was_saved_on(
    numbers: Numbers, file: Path, device: cl.Device
) -> None:
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(2)
    graph.save(file)
    found = fairlead.load(file).new_queue().device
    assert (found.name, found.platform.name) == (device.name, device.platform.name)


CUDA, POCL, INTEL = "NVIDIA CUDA", "Portable Computing Language", "Intel(R) OpenCL"
MACHINE = [("cpu0", POCL, "CPU"), ("A100", CUDA, "GPU"), ("H100", CUDA, "GPU"), ("x", INTEL, "CPU")]


@pytest.mark.parametrize(
    ("saved", "numbers", "warned"),
    [
        (("H100", CUDA, "GPU"), [2, 1], False),  # those of its platform and type, its name first
        (("x", INTEL, "CPU"), [3], False),
        (("cpu1", POCL + " ", "CPU"), [0], False),
        (("MI300", "AMD", "GPU"), [1, 2], False),  # those of its type
        (("cpu0", POCL, ""), [0], False),  # an earlier version wrote no type
        (("MI300", "AMD", ""), [0, 1, 2, 3], True),
        (("board", "FPGA", "ACCELERATOR"), [0, 1, 2, 3], True),
        (("", "", ""), [0, 1, 2, 3], False),  # a file that names no device
    ],
)
def test_which_devices_are_like_the_one_of_a_file(
    saved: tuple[str, ...], numbers: list[int], warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[Any] = [
        SimpleNamespace(name=name, platform=SimpleNamespace(name=platform), type=kind)
        for name, platform, kind in MACHINE
    ]
    monkeypatch.setattr(devices, "devices", lambda: there)
    names = dict(zip(("device", "platform", "type"), saved, strict=True))
    found, warning = devices.find_similar_devices({key: one for key, one in names.items() if one})
    assert [there.index(one) for one in found] == numbers
    assert bool(warning) == warned
    if warned:
        assert saved[0] in warning and f"cpu0 ({POCL}, CPU) is taken" in warning


def test_a_device_of_another_kind_is_taken_with_a_warning(device: cl.Device) -> None:
    saved = {"device": "board", "platform": "FPGA", "type": "ACCELERATOR"}
    with pytest.warns(RuntimeWarning, match=r"saved on board \(FPGA, ACCELERATOR\)"):
        devices.find_pyopencl_device(None, None, saved)
    assert devices.find_pyopencl_device(device, None, saved) == device


def test_a_call_where_the_host_runs_the_graph_transfers_nothing(
    numbers: Numbers, file: Path, device: cl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why_not_device(device.int_ptr) is not None:
        pytest.skip("the engine direct does not run on this driver")
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "direct")
    a, by = numbers.buffer, fairlead.Parameter(np.int32(2))
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(by)
    graph.save(file, names={"a": a})
    loaded = fairlead.load(file, device)
    loop, start = loaded.finalize(), np.full(64, 10, np.int32).view(np.uint8)
    with monkeypatch.context() as patch:
        for name in ("start_put", "get_all"):
            patch.delattr(fairlead.LoadedGraph, name)
        for turn in range(5):
            assert (loop(a=start, by=turn)["a"].view(np.int32) == 10 + turn).all()
        assert (loop(times=3)["a"].view(np.int32) == 14 + 3 * 4).all()
    queue = loaded.new_queue()
    loop.replay(queue, times=100, by=1)
    assert (loop(a=start)["a"].view(np.int32) == 11).all(), "the replays have ended before"
    found = loaded.get_all(queue, ["a"])["a"]
    assert (found.view(np.int32) == 11).all(), "the driver sees what the host wrote"


@pytest.mark.parametrize("access", ["HOST_NO_ACCESS", "HOST_READ_ONLY", "HOST_WRITE_ONLY"])
def test_memory_that_the_host_may_not_touch(
    numbers: Numbers, file: Path, device: cl.Device, access: str
) -> None:
    """It is saved with its contents. Who loads it gives it arrays, and gets them."""
    flags, queue = cl.mem_flags, numbers.queue
    first = np.full(64, 5, np.int32)
    there = cl.Buffer(
        queue.context,
        getattr(flags, access) | flags.COPY_HOST_PTR | flags.READ_WRITE,
        hostbuf=first,
    )
    with fairlead.capture(queue) as graph:
        copy(queue, numbers.buffer, there, byte_count=256)
        numbers.add(1)
        copy(queue, there, numbers.buffer, byte_count=256)
    graph.save(file, contents="inputs", names={"there": there, "a": numbers.buffer})
    loop = fairlead.load(file, device).finalize()
    assert (loop()["there"].view(np.int32) == 6).all()
    assert (loop(there=first.view(np.uint8))["there"].view(np.int32) == 6).all()


def test_the_variables_of_the_caller_name_the_memory(
    queue: cl.CommandQueue, file: Path, device: cl.Device
) -> None:
    u = cl_array.to_device(queue, np.arange(12, dtype=np.float32).reshape(3, 4))
    v = cl_array.zeros(queue, (3, 4), np.float32)
    host = np.zeros((3, 4), np.float32)
    dt = fairlead.Parameter(np.float32(0.5))
    with fairlead.capture(queue) as graph:
        copy(queue, v.data, u.data)
        v *= dt
        copy(queue, host, v.data, is_blocking=False)
    graph.save(file, contents="inputs")
    loaded = fairlead.load(file, device)
    assert loaded.inputs == ("u",) and set(loaded.outputs) == {"v", "host"}
    loop = loaded.finalize()
    out = loop()
    np.testing.assert_array_equal(out["v"], u.get() / 2)
    assert out["host"].shape == (3, 4) and out["host"].dtype == np.float32
    out = loop(u=np.ones((3, 4)), dt=4)
    assert (out["host"] == 4).all()
    with pytest.raises(ArgumentError, match="u is memory of \\(3, 4\\)"):
        loop(u=np.ones(12))
    with pytest.raises(ArgumentError, match="nothing that is called w"):
        loop(w=1)
    loaded.save(file, contents="all")
    again = fairlead.load(file, device).finalize()
    assert (again()["host"] == 0.5).all(), "u is kept, and dt begins as in the block"


@pytest.mark.parametrize(
    "options",
    [
        ["-DX=(1+2)"],
        ["-D", "X=(1+2)"],
        ["-DARR={3,1}", "-DX=((int[])ARR)[0]"],
        ["-DF(a,b)=(a*b)", "-DX=F(1,3)"],
        ["-DX=3;"],
        ["-DX=9>>1&3|3"],
        ["-DX=~-4"],
    ],
    ids=lambda options: " ".join(options),
)
def test_build_options_are_saved_as_they_are(
    queue: cl.CommandQueue, file: Path, device: cl.Device, options: list[str]
) -> None:
    """Characters that a shell would quote mean nothing to a driver."""
    source = "kernel void put(global int *o) { int x = X; o[get_global_id(0)] = x; }"
    program = cl.Program(queue.context, source).build(options=options)
    put, out = program.put, cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 16)
    with fairlead.capture(queue) as graph:
        put(queue, (4,), None, out)
    graph.save(file)
    loaded = fairlead.load(file, device)
    assert (loaded.finalize()()["out"].view(np.int32) == 3).all()
    assert programs.strip_includes(" ".join(options)) == " ".join(options)


def put_by_a_temporary(queue: cl.CommandQueue, source: str, options: list[str]) -> cl.Kernel:
    """The kernel `put` of a program that nothing else keeps."""
    return cl.Kernel(cl.Program(queue.context, source).build(options=options), "put")


def check_saved(queue: cl.CommandQueue, put: cl.Kernel, file: Path, device: cl.Device) -> None:
    """Check that a launch of `put` stores 3 when it comes out of a file."""
    out = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 16)
    with fairlead.capture(queue) as graph:
        put(queue, (4,), None, out)
    graph.save(file)
    loaded = fairlead.load(file, device)
    assert (loaded.finalize()()["out"].view(np.int32) == 3).all()


PUT: Final = "kernel void put(global int *o) { o[get_global_id(0)] = X; }"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("#ifndef X // or 1\n#define X 1\n#endif\n", "the macro X"),
        ("#if defined(cl_khr_fp64) && \\\n Y\n#endif\n", "the macro Y"),
        ('#include "put.h"\n', 'includes "put.h"'),
        ("", "cannot be built without options"),
    ],
)
def test_options_that_no_driver_tells_are_not_lost(
    queue: cl.CommandQueue, file: Path, device: cl.Device, source: str, why: str, tmp_path: Path
) -> None:
    """Intel's driver tells nothing of a program that only its kernels keep."""
    (tmp_path / "put.h").write_text("")
    options = ["-DX=3", "-DY=1", f"-I{tmp_path}"]
    put = put_by_a_temporary(queue, source + PUT, options)
    try:
        check_saved(queue, put, file, device)
    except fairlead.GraphFileError as error:
        assert why in str(error) and "keep the pyopencl.Program" in str(error)
        assert not queries.query_text(
            query_program(put.int_ptr), "clGetProgramInfo", "CL_PROGRAM_SOURCE"
        )


@pytest.mark.parametrize(
    "source",
    [
        "/* #if Y */ #define X 3\n// #ifdef Z\n#ifdef X\n",
        "#include <pyopencl-complex.h>\n#if __OPENCL_VERSION__ >= 110\n#define X 3\n",
    ],
)
def test_a_temporary_program_whose_options_do_not_matter_is_saved(
    queue: cl.CommandQueue, file: Path, device: cl.Device, source: str
) -> None:
    put = put_by_a_temporary(queue, source.replace("*/ #", "*/\n#") + PUT + "\n#endif\n", [])
    check_saved(queue, put, file, device)


def test_include_paths_with_blanks_are_saved(
    queue: cl.CommandQueue, file: Path, device: cl.Device, tmp_path: Path
) -> None:
    folder = tmp_path / "two  blanks"
    folder.mkdir()
    (folder / "x.h").write_text("#define X 3\n")
    program = cl.Program(queue.context, "#include <x.h>\n" + PUT)
    try:
        put = program.build(options=["-I", f'"{folder}"']).put
    except cl.RuntimeError:
        pytest.skip("the driver takes no folder with blanks")
    check_saved(queue, put, file, device)


def test_a_file_is_loaded_where_pyopencl_cannot_cache(
    numbers: Numbers, file: Path, device: cl.Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """PyOpenCL turns an error of its cache into a KeyError."""
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(2)
    graph.save(file)
    (tmp_path / "no_folder").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no_folder"))
    monkeypatch.delenv("PYOPENCL_CACHE_FAILURE_FATAL", raising=False)
    fairlead.load(file, device).finalize()()


def test_arrays_whose_programs_are_gone_are_saved(
    queue: cl.CommandQueue, file: Path, device: cl.Device
) -> None:
    """PyOpenCL keeps kernels of its arrays, and no program."""
    x, drawn = cl_array.zeros(queue, 64, np.float32) + 1, cl_array.zeros(queue, 64, np.float32)
    generator = PhiloxGenerator(queue.context)
    sums: Any = cl_array.cumsum(x)
    with fairlead.capture(queue) as graph:
        generator.fill_uniform(drawn)
        sums = cl_array.cumsum(x)
        sums += cl_array.sum(x)
    graph.save(file, contents="inputs", names={"sums": sums, "drawn": drawn})
    out = fairlead.load(file, device).finalize()()
    np.testing.assert_array_equal(out["sums"], np.arange(65, 129))
    assert 0 < out["drawn"].min() < out["drawn"].max() < 1


class Strided:
    """An array of another package with gaps between its elements."""

    __sycl_usm_array_interface__: Final = {
        "data": (4096, False),
        "shape": (4,),
        "strides": (2,),
        "typestr": "<i4",
    }


class Secretive:
    """What cannot even be looked at."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_odd_variables_of_the_caller_do_no_harm(
    numbers: Numbers, file: Path, device: cl.Device
) -> None:
    strided, odd, pair, here = (
        Strided(),
        Secretive(),
        (np.zeros(64, np.int32), 1),
        np.zeros(64, np.int32),
    )
    with fairlead.capture(numbers.queue) as graph:
        copy(numbers.queue, here, numbers.buffer, is_blocking=False)
        copy(numbers.queue, pair[0], numbers.buffer, is_blocking=False)
    graph.save(file)
    assert fairlead.load(file, device).outputs == ("here", "memory2")
    assert odd and strided


def test_inputs_and_outputs_can_be_named(numbers: Numbers, file: Path, device: cl.Device) -> None:
    a, b = numbers.buffer, numbers.new(5)
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(1, a)
        numbers.add(1, b)
    graph.save(file, contents="all", outputs=["b"])
    loaded = fairlead.load(file, device)
    out = loaded.finalize()()
    assert list(out) == ["b"] and (out["b"].view(np.int32) == 6).all()
    with pytest.raises(fairlead.GraphFileError, match="no memory that is called c") as raised:
        graph.save(file, inputs=["c"])
    assert raised.value.code == "CANNOT_SAVE" and "a, b" in raised.value.remedy


def test_local_memory_sub_buffers_and_const(
    queue: cl.CommandQueue, context: cl.Context, file: Path, device: cl.Device
) -> None:
    program = cl.Program(context, LOCAL).build(["-cl-kernel-arg-info"])
    kernel, flags = program.shared_sum, cl.mem_flags.READ_WRITE
    whole = cl.Buffer(context, flags, 4096)
    low, high = whole.get_sub_region(0, 1024), whole.get_sub_region(2048, 1024)
    numbers = np.arange(256, dtype=np.int32)
    with fairlead.capture(queue) as graph:
        copy(queue, low, numbers, is_blocking=False)
        kernel(queue, (256,), (16,), low, high, local(64), np.int32(2))
    graph.save(file, contents="inputs")
    loaded = fairlead.load(file, device)
    assert loaded.inputs == ("numbers", "whole")  # `high` is not const, so it may be read
    out = loaded.finalize()(numbers=numbers + 1)["whole"].view(np.int32)
    blocks = (numbers + 1).reshape(16, 16)
    np.testing.assert_array_equal(out[512:768].reshape(16, 16), 2 * (blocks + blocks[:, ::-1]))


def test_transfers_of_every_kind(
    queue: cl.CommandQueue, context: cl.Context, file: Path, device: cl.Device
) -> None:
    a, b = (cl.Buffer(context, cl.mem_flags.READ_WRITE, 4096) for _ in range(2))
    source, target = np.arange(1024, dtype=np.int32).reshape(32, 32), np.zeros((32, 32), np.int32)
    part = np.zeros((4, 8), np.uint8)
    rect: dict[str, Any] = {"is_blocking": False, "buffer_pitches": (128,)}
    with fairlead.capture(queue) as graph:
        cl.enqueue_fill_buffer(queue, b, np.array(0x1234, np.uint16), 0, 4096)
        copy(queue, a, source, is_blocking=False)
        copy(
            queue,
            b,
            a,
            src_origin=(8, 2),
            dst_origin=(0, 1),
            region=(16, 4),
            src_pitches=(128,),
            dst_pitches=(128,),
        )
        copy(queue, part, b, buffer_origin=(4, 1), host_origin=(0, 0), region=(8, 4), **rect)
        copy(queue, b, part, buffer_origin=(64, 8), host_origin=(0, 0), region=(8, 4), **rect)
        copy(queue, b, a, byte_count=100, src_offset=28, dst_offset=2048)
        copy(queue, target, b, is_blocking=False)
    graph.save(file, contents="inputs")
    loaded = fairlead.load(file, device)
    assert [node.op for node in loaded] == [node.op for node in graph]
    assert [node.details for node in loaded] == [node.details for node in graph]
    graph.finalize().replay(queue).wait()
    out = loaded.finalize()()
    np.testing.assert_array_equal(out["target"], target)
    np.testing.assert_array_equal(out["part"], part)
    assert part.any()
    assert set(loaded.inputs) == {"source"}, "everything else is written first"


def test_images_and_samplers(
    queue: cl.CommandQueue, context: cl.Context, file: Path, device: cl.Device
) -> None:
    form = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.UNSIGNED_INT8)
    flags = cl.mem_flags
    source = cl.Image(context, flags.READ_ONLY, form, shape=(16, 8))
    target = cl.Image(context, flags.READ_WRITE, form, shape=(16, 8))
    buffer = cl.Buffer(context, flags.READ_WRITE, 512)
    pixels_in = np.arange(512, dtype=np.uint16).astype(np.uint8).reshape(8, 16, 4)
    pixels_out = np.zeros((8, 16, 4), np.uint8)
    program = cl.Program(
        context,
        "kernel void mirror(read_only image2d_t a, write_only image2d_t b, sampler_t s) {"
        " int2 at = (int2)(get_global_id(0), get_global_id(1));"
        " write_imageui(b, at, read_imageui(a, s, (int2)(20 - at.x, at.y))); }",
    ).build()
    mirror = program.mirror
    sampler = cl.Sampler(context, False, cl.addressing_mode.CLAMP_TO_EDGE, cl.filter_mode.NEAREST)
    origin, region = (0, 0), (16, 8)
    with fairlead.capture(queue) as graph:
        copy(queue, source, pixels_in, origin=origin, region=region, is_blocking=False)
        mirror(queue, (16, 8), None, source, target, sampler)
        copy(queue, buffer, target, offset=0, origin=origin, region=region)
        copy(queue, source, buffer, offset=0, origin=origin, region=region)
        copy(queue, pixels_out, source, origin=origin, region=region, is_blocking=False)
    graph.save(file, contents="all")
    loaded = fairlead.load(file, device)
    graph.finalize().replay(queue).wait()
    np.testing.assert_array_equal(pixels_out[:, 5:], pixels_in[:, :4:-1])
    out = loaded.finalize()()
    np.testing.assert_array_equal(out["pixels_out"], pixels_out)
    np.testing.assert_array_equal(out["buffer"], pixels_out.reshape(-1))


def test_svm(queue: cl.CommandQueue, context: cl.Context, file: Path, device: cl.Device) -> None:
    if not device.svm_capabilities:
        pytest.skip("the device has no SVM")
    program = cl.Program(
        context, "kernel void twice(global int *x) { x[get_global_id(0)] *= 2; }"
    ).build()
    kernel = program.twice
    memory = cl.SVMAllocation(context, 256, 0, cl.svm_mem_flags.READ_WRITE)
    result = np.zeros(64, np.int32)
    with fairlead.capture(queue) as graph:
        cl.enqueue_fill(queue, memory, np.array(21, np.int32), 256)
        kernel(queue, (64,), None, memory)
        copy(queue, result, memory, is_blocking=False)
    graph.save(file, contents="all")
    loaded = fairlead.load(file, device)
    assert (loaded.finalize()()["result"] == 42).all() and not result.any()


def test_a_launch_that_has_a_parameter_twice(
    numbers: Numbers, file: Path, device: cl.Device
) -> None:
    program = cl.Program(
        numbers.queue.context,
        "kernel void both(global int *u, global int *v, int n, int m) {"
        " v[get_global_id(0)] = u[get_global_id(0)] + n * m; }",
    ).build()
    both, u, v = program.both, numbers.new(1), numbers.new(2)
    into, n = fairlead.Parameter(numbers.buffer), fairlead.Parameter(np.int32(3))
    with fairlead.capture(numbers.queue, swap=(u, v)) as graph:
        both(numbers.queue, (64,), None, into, into, n, n)
        both(numbers.queue, (64,), None, u, u, n, n)
    graph.save(file, contents="all", names={"u": u, "v": v}, outputs=["u", "v", "into"])
    loop = fairlead.load(file, device).finalize()
    out = loop(times=3, n=2)
    assert (out["into"].view(np.int32) == 12).all()
    assert (out["u"].view(np.int32) == 9).all() and (out["v"].view(np.int32) == 6).all()


def test_buffers_that_alternate_and_buffers_that_are_parameters(
    numbers: Numbers, file: Path, device: cl.Device
) -> None:
    program = cl.Program(
        numbers.queue.context,
        "kernel void advance(global const int *u, global int *v) {"
        " v[get_global_id(0)] = u[get_global_id(0)] + 1; }",
    ).build()
    step, u, v = program.advance, numbers.new(1), numbers.new(0)
    with fairlead.capture(numbers.queue, swap=(u, v)) as graph:
        step(numbers.queue, (64,), None, u, v)
    graph.save(file, contents="all")
    loop = fairlead.load(file, device).finalize()
    out = loop(times=3)
    assert loop.is_swapped and out["v"].view(np.int32)[0] == 4
    into = fairlead.Parameter(numbers.buffer)
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(7, into)
        copy(numbers.queue, numbers.host, into, is_blocking=False)
    graph.save(file, contents="inputs", names={"host": numbers.host})
    loaded = fairlead.load(file, device)
    loop = loaded.finalize()
    assert loop.parameters == ("into",)
    assert (loop()["host"] == 7).all()
    hundreds, queue = np.full(64, 100, np.int32), loaded.new_queue()
    other = cl_array.to_device(queue, hundreds)
    queue.finish()  # the loop has a queue of its own, and Intel's blocking writes return early
    loop.set(into=other.data)
    assert (loop()["host"] == 107).all()


def test_a_loaded_graph_is_one_like_any_other(
    numbers: Numbers, context: cl.Context, file: Path, device: cl.Device
) -> None:
    a = numbers.buffer
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(1)
        numbers.mul(2)
    graph.save(file)
    loaded = fairlead.load(file, device, context=context)
    del graph
    gc.collect()
    loop = loaded.finalize(updatable=True)
    loaded[0].set_arg(1, np.int32(5))
    loop.update(loaded[0])
    assert (loop()["a"].view(np.int32) == 10).all()
    loop.set(loaded[1], 0, a)  # it shares the context, so it can have the program's memory
    cl.enqueue_fill_buffer(numbers.queue, a, np.array(4, np.int32), 0, 256)
    loop.replay(numbers.queue)
    assert numbers.value() == 8
    seen: list[int] = []
    task = loaded.add(lambda handler: handler.host_task(lambda: seen.append(1)))
    loaded.make_edge(task, loaded[1])
    assert loaded.finalize()() and seen == [1]
    with pytest.raises(fairlead.GraphFileError, match=r"host task.*<lambda>") as raised:
        loaded.save(file)
    assert raised.value.routine == "save" and "remove the host task" in raised.value.remedy


def test_transfers_do_not_wait_before_the_queue_is_finished(
    numbers: Numbers, context: cl.Context, file: Path, device: cl.Device
) -> None:
    """A host task may have to end first, and a wait that keeps Python from running would stop
    it."""
    gate = cl.UserEvent(context)

    class Gated(cl.CommandQueue):
        def finish(self) -> None:
            gate.set_status(cl.command_execution_status.COMPLETE)
            super().finish()

    a = numbers.buffer
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(1)
    graph.save(file, names={"a": a})
    loaded = fairlead.load(file, device, context=context)
    queue = Gated(context)
    cl.enqueue_barrier(queue, wait_for=[gate])
    given = loaded.start_put(queue, "a", loaded.bytes_of("a", np.full(256, 3, np.uint8)))
    found = loaded.get_all(queue, ["a"])
    assert (found["a"] == 3).all() and given is not None


def test_a_changed_graph_with_a_sub_graph(numbers: Numbers, file: Path, device: cl.Device) -> None:
    a = numbers.buffer
    with fairlead.capture(numbers.queue) as inner:
        numbers.add(1)
        numbers.mul(2)
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(10)
        numbers.mul(3)
    part = inner.finalize()
    node = graph.add(lambda handler: handler.graph_execution(part), depends_on=graph[0])
    graph.make_edge(node, graph[1])
    graph[1].set_arg(1, np.int32(5))
    graph.add(depends_on=graph[1])
    graph.save(file, names={"a": a})
    loaded = fairlead.load(file, device)
    assert len(loaded) == 5
    assert (loaded.finalize()()["a"].view(np.int32) == (10 + 1) * 2 * 5).all()


@pytest.mark.parametrize("engine", ["replay", "direct", "native", "auto"])
def test_every_engine_runs_it(
    numbers: Numbers, file: Path, device: cl.Device, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = numbers.buffer
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(3)
        numbers.shared_add(numbers.queue, (64,), (16,), numbers.buffer, np.int32(4), local(64))
    graph.save(file, names={"a": a})
    loaded = fairlead.load(file, device)
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", engine)
    assert (loaded.finalize()(times=2)["a"].view(np.int32) == 14).all()


def test_binaries_are_for_their_device(numbers: Numbers, file: Path, device: cl.Device) -> None:
    a = numbers.buffer
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(3)
    graph.save(file, names={"a": a}, binaries=True)
    with GraphArchive(file) as archive:
        (program,) = archive.document.programs
        assert program["source"] and len(archive.read_program(program["binaries"][0]["file"])) > 100
    assert (fairlead.load(file, device).finalize()()["a"].view(np.int32) == 3).all()


def test_a_binary_that_the_driver_refuses_is_built_from_source(
    numbers: Numbers, file: Path, device: cl.Device
) -> None:
    """The driver was built differently, under the same version."""
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(3)
    graph.save(file, names={"a": numbers.buffer}, binaries=True)
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, b"not a binary" if name.endswith(".bin") else data)
    assert (fairlead.load(file, device).finalize()()["a"].view(np.int32) == 3).all()


def test_a_program_of_a_binary_is_saved_as_one(
    queue: cl.CommandQueue, numbers: Numbers, file: Path, device: cl.Device
) -> None:
    binaries: Any = numbers.program.get_info(cl.program_info.BINARIES)
    others = Numbers(queue, cl.Program(queue.context, [device], binaries).build())
    with fairlead.capture(queue) as graph:
        others.add(3)
    graph.save(file, names={"a": others.buffer})
    with GraphArchive(file) as archive:
        (program,) = archive.document.programs
        assert len(archive.read_program(program["binaries"][0]["file"])) > 100
    assert (fairlead.load(file, device).finalize()()["a"].view(np.int32) == 3).all()


def test_equal_graphs_are_equal_files(numbers: Numbers, tmp_path: Path) -> None:
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(3)
        numbers.read()
    for name in ("one", "other"):
        graph.save(tmp_path / name, contents="all")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


@pytest.mark.driver("pocl_wheel", "intel_cpu")
def test_a_file_of_one_driver_runs_on_the_others(
    numbers: Numbers, file: Path, context: cl.Context
) -> None:
    """Intel's driver takes the local size that a kernel requires by itself, PoCL not."""
    a = numbers.buffer
    attribute = "__attribute__((reqd_work_group_size(4, 1, 1)))"
    source = f"kernel {attribute} void f(global int *a) {{ a[get_global_id(0)] *= 5; }}"
    by_fours: Any = cl.Program(context, source).build().f
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(3)
        by_fours(numbers.queue, (64,), None, a)
    graph.save(file)
    for other in fairlead.devices():
        if "CPU" in other.type.upper():
            out = fairlead.load(file, other).finalize()()
            assert (out["a"].view(np.int32) == 15).all(), other


def test_a_loaded_graph_touches_nothing_in_a_forked_child(numbers: Numbers, file: Path) -> None:
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(1)
    graph.save(file)
    loop = fairlead.load(file, numbers.queue.device).finalize()
    loop._block._forks -= 1
    loop._own = None  # no queue of the parent is asked
    with pytest.raises(SYCLError, match="before this process was forked"):
        loop()


def test_what_cannot_be_saved(numbers: Numbers, file: Path) -> None:
    kernel = cl.Kernel(numbers.program, "add")
    kernel.set_arg(0, numbers.buffer)
    with fairlead.capture(numbers.queue, keep=[numbers.buffer]) as graph:
        kernel.set_arg(1, np.int32(1))
        cl.enqueue_nd_range_kernel(numbers.queue, kernel, (64,), None)
    with pytest.raises(fairlead.GraphFileError, match="argument 0 of the kernel add was set"):
        graph.save(file)
    assert not file.exists() and not list(file.parent.iterdir())
    with fairlead.capture(numbers.queue, keep=[numbers.buffer]) as graph:
        numbers.add(1)
        numbers.mul(1)
        cl.enqueue_nd_range_kernel(numbers.queue, kernel, (64,), None)
    with pytest.raises(fairlead.GraphFileError, match="argument 0 of the kernel add was set"):
        graph.save(file)
    with fairlead.capture(numbers.queue) as graph:
        numbers.add(1)
    with pytest.raises(fairlead.GraphFileError, match="cannot be written: No such file"):
        graph.save(file.parent / "none" / "x.flg")
    with pytest.raises(fairlead.GraphFileError, match="contents is 'some'"):
        graph.save(file, contents="some")
