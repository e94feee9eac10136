"""The driver of the tests does what HIP does in each profile, where HIP differs from CUDA."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.hip import FakeHip

from fairlead.icd.driver_profiles import locate
from fairlead.loader.hip.abi import HIP, check
from fairlead.loader.hip.driver import CXX_SYMBOLS

SOURCE = """
kernel void scale(global int *y, int factor, int summand) {
    size_t i = get_global_id(0);
    y[i] = y[i] * factor + summand;
}
"""
COUNT = 64


class Hip:
    """Calls of HIP that raise, and memory that every device and the host see."""

    def __init__(self, fake: FakeHip) -> None:
        self.fake, self.driver, self.table = fake, fake.driver, fake.driver.table

    def __getattr__(self, name: str) -> Callable[..., None]:
        routine = f"hip{name}"
        return lambda *arguments: check(getattr(self.table, routine)(*arguments), routine)

    def make(self, name: str, *arguments: Any) -> int:
        """Call a function that writes a handle first."""
        made = ctypes.c_uint64()
        getattr(self, name)(ctypes.byref(made), *arguments)
        return made.value

    def numbers(self, count: int = COUNT) -> tuple[int, Any]:
        """Allocate device memory, and see it as an array: the fake's is this process's."""
        address = self.make("Malloc", 4 * count)
        array = (ctypes.c_int * count).from_address(address)
        array[:] = range(count)
        return address, array


@pytest.fixture
def hip(fake_hip: FakeHip) -> Hip:
    return Hip(fake_hip)


@pytest.fixture
def stream(hip: Hip) -> Iterator[int]:
    made = hip.make("StreamCreateWithFlags", 1)
    yield made
    hip.StreamDestroy(made)


@pytest.fixture
def scale(hip: Hip, pocl_wheel: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """A kernel that runs on PoCL."""
    monkeypatch.setenv("FAKE_CUDA_OPENCL", locate(pocl_wheel)[0])
    module = hip.make("ModuleLoadDataEx", SOURCE.encode(), 0, None, None)
    return hip.make("ModuleGetFunction", module, b"scale")


def arguments_of(address: int, factor: int, summand: int) -> tuple[Any, list[Any]]:
    """Return kernelParams, and what they lead to."""
    values = [ctypes.c_uint64(address), ctypes.c_int(factor), ctypes.c_int(summand)]
    return (ctypes.c_void_p * 3)(*map(ctypes.addressof, values)), values


def launch_params(hip: Hip, function: int, pointers: Any) -> Any:
    made = HIP.get_struct("hipKernelNodeParams")()
    made.func, made.kernelParams = function, ctypes.addressof(pointers)
    made.gridDim.x, made.gridDim.y, made.gridDim.z = 1, 1, 1
    made.blockDim.x, made.blockDim.y, made.blockDim.z = COUNT, 1, 1
    return made


@pytest.mark.slow
def test_every_function_can_fail(hip: Hip) -> None:
    """The fake has every function of its profile, and a knob for each."""
    version = hip.driver.version
    for function in HIP.slots:
        hip.fake.fail(function.name, 999)
        given = [
            None
            if parameter.stars
            else HIP.get_struct(parameter.type)()
            if parameter.type in HIP.structs
            else 0
            for parameter in function.parameters
        ]
        code = getattr(hip.table, function.name)(*given)
        is_here = function.since <= version or function.name in CXX_SYMBOLS
        assert code == (999 if is_here else HIP.codes["hipErrorNotSupported"]), function.name


def test_devices_are_numbers(hip: Hip) -> None:
    number = ctypes.c_int(9)
    hip.GetDevice(ctypes.byref(number))
    assert number.value == 0
    assert hip.table.hipSetDevice(7) == HIP.codes["hipErrorInvalidDevice"]
    assert hip.table.hipGetLastError() == HIP.codes["hipErrorInvalidDevice"]
    assert hip.table.hipGetLastError() == 0
    assert hip.table.hipCtxSynchronize() == HIP.codes["hipErrorNotSupported"]
    hip.DeviceSynchronize()
    attribute = HIP["hipDeviceAttributeWarpSize"]
    hip.DeviceGetAttribute(ctypes.byref(number), attribute, 0)
    assert number.value == 64
    newest = HIP["hipDeviceAttributeHostRegisterSupported"]
    code = hip.table.hipDeviceGetAttribute(ctypes.byref(number), newest, 0)
    assert (code == 0) == (hip.driver.generation == 6)


def test_kinds_of_memory(hip: Hip) -> None:
    host, device = hip.make("HostMalloc", 64, 0), hip.make("Malloc", 64)
    managed = hip.make("MallocManaged", 64, 1)
    for address, name in ((host, "Host"), (device, "Device")):
        attributes = hip.driver.get_struct("hipPointerAttribute_t")()
        hip.PointerGetAttributes(ctypes.byref(attributes), address + 3)
        first = attributes._fields_[0][0]
        expected = hip.driver.get_constant(f"hipMemoryType{name}")
        assert getattr(attributes, first) == expected and attributes.devicePointer == address + 3
        kind = ctypes.c_uint32(99)
        attribute = HIP["HIP_POINTER_ATTRIBUTE_MEMORY_TYPE"]
        hip.PointerGetAttribute(ctypes.byref(kind), attribute, address)
        assert kind.value == expected
    attributes = hip.driver.get_struct("hipPointerAttribute_t")()
    hip.PointerGetAttributes(ctypes.byref(attributes), managed)
    assert attributes.isManaged == 1
    unknown = ctypes.create_string_buffer(1)
    code = hip.table.hipPointerGetAttributes(ctypes.byref(attributes), unknown)
    assert (code == 0) == (hip.driver.generation == 6)
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    hip.MemGetAddressRange(ctypes.byref(base), ctypes.byref(size), device + 5)
    assert (base.value, size.value) == (device, 64)
    assert hip.make("Malloc", 0) == 0
    hip.HostFree(host)
    hip.Free(device)
    hip.Free(managed)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["kernelParams", "buffer"])
def test_launches(hip: Hip, stream: int, scale: int, way: str) -> None:
    address, array = hip.numbers()
    pointers, values = arguments_of(address, 3, 4)
    shape = (1, 1, 1, COUNT, 1, 1, 0, stream)
    values_in_a_row = address.to_bytes(8, "little") + bytes([3, 0, 0, 0, 4, 0, 0, 0])
    buffer, size = ctypes.create_string_buffer(values_in_a_row), ctypes.c_size_t(16)
    for end in (0, 3):
        words = [1, ctypes.addressof(buffer), 2, ctypes.addressof(size), end]
        extra = (ctypes.c_void_p * 5)(*words)
        given = (pointers, None) if way == "kernelParams" else (None, extra)
        code = hip.table.hipModuleLaunchKernel(scale, *shape, *given)
        if way == "kernelParams" or end == 3:
            assert code == 0
            break
        assert code == HIP.codes["hipErrorInvalidValue"]  # CUDA's end
    both = hip.table.hipModuleLaunchKernel(scale, *shape, pointers, extra)
    assert both == HIP.codes["hipErrorInvalidValue"] and values
    hip.StreamSynchronize(stream)
    assert list(array) == [3 * number + 4 for number in range(COUNT)]
    hip.Free(address)


def test_programs(hip: Hip, scale: int) -> None:
    """A code object is an ELF file for AMD's GPUs, with OpenCL C behind it."""
    found = ctypes.c_void_p()

    def load(image: bytes) -> int:
        return hip.table.hipModuleLoadDataEx(ctypes.byref(found), image, 0, None, None)

    head = bytearray(64)
    head[:7], head[18] = b"\x7fELF\2\1\1", 224
    assert load(bytes(head) + SOURCE.encode() + b"\0") == 0 and scale
    name = b"no_such_kernel"
    code = hip.table.hipModuleGetFunction(ctypes.byref(ctypes.c_void_p()), found, name)
    assert code == HIP.codes["hipErrorNotFound"]
    hip.ModuleUnload(found)
    head[18] = 62
    assert load(bytes(head) + SOURCE.encode() + b"\0") == HIP.codes["hipErrorNoBinaryForGpu"]
    assert load(b"no program") == HIP.codes["hipErrorInvalidImage"]


def test_copies_of_rows(hip: Hip, stream: int) -> None:
    """Two of four rows, by HIP's two structs. The larger one is another one before HIP 6.0."""
    source, numbers = hip.numbers()
    target, found = hip.numbers()
    for way in ("runtime", "driver"):
        ctypes.memset(target, 0, 4 * COUNT)
        if way == "runtime":
            copy = HIP.get_struct("hipMemcpy3DParms")()
            copy.srcPtr.ptr, copy.srcPtr.pitch, copy.srcPtr.ysize = source, 16, 16
            copy.dstPtr.ptr, copy.dstPtr.pitch, copy.dstPtr.ysize = target, 32, 8
            copy.srcPos.x, copy.srcPos.y, copy.kind = 4, 1, HIP["hipMemcpyDefault"]
            copy.extent.width, copy.extent.height, copy.extent.depth = 8, 2, 1
            hip.Memcpy3DAsync(ctypes.byref(copy), stream)
            copy.kind = 99
            wrong = hip.table.hipMemcpy3DAsync(ctypes.byref(copy), stream)
            assert wrong == HIP.codes["hipErrorInvalidMemcpyDirection"]
        else:
            copy = hip.driver.get_struct("HIP_MEMCPY3D")()
            copy.srcMemoryType = hip.driver.get_constant("hipMemoryTypeHost")
            copy.srcHost, copy.srcPitch, copy.srcXInBytes, copy.srcY = source, 16, 4, 1
            copy.dstMemoryType = hip.driver.get_constant("hipMemoryTypeDevice")
            copy.dstDevice, copy.dstPitch = target, 32
            copy.WidthInBytes, copy.Height, copy.Depth = 8, 2, 1
            hip.DrvMemcpy3DAsync(ctypes.byref(copy), stream)
        hip.StreamSynchronize(stream)
        assert found[:2] == [5, 6] and found[8:10] == [9, 10] and numbers[5] == 5
    hip.Free(source)
    hip.Free(target)


def test_physical_memory(hip: Hip) -> None:
    kind = hip.driver.get_struct("hipMemAllocationProp")()
    kind.type, kind.location.type = HIP["hipMemAllocationTypePinned"], 1
    size = hip.make("MemGetAllocationGranularity", ctypes.byref(kind), 0)
    assert hip.make("MemCreate", size, ctypes.byref(kind), 0) == size
    kind.type = 0
    code = hip.table.hipMemCreate(ctypes.byref(ctypes.c_uint64()), size, ctypes.byref(kind), 0)
    assert code == HIP.codes["hipErrorInvalidValue"]


def test_the_null_stream_comes_after_all_others(hip: Hip, stream: int) -> None:
    address, array = hip.numbers()
    hip.fake.hold()
    try:
        hip.MemsetD32Async(address, 7, COUNT, stream)
        assert hip.table.hipStreamQuery(stream) == HIP.codes["hipErrorNotReady"]
        assert hip.table.hipStreamQuery(None) == HIP.codes["hipErrorNotReady"]
    finally:
        hip.fake.let_go()
    hip.MemsetD32Async(address, 8, 1, None)
    hip.StreamSynchronize(None)
    assert hip.table.hipStreamQuery(None) == 0
    assert array[:3] == [8, 7, 7]
    hip.Free(address)


@pytest.mark.parametrize("bits", [32, 64])
def test_a_stream_waits_for_the_bits_of_a_mask(hip: Hip, stream: int, bits: int) -> None:
    address, array = hip.numbers()
    other = hip.make("StreamCreateWithFlags", 1)
    wait, write = (getattr(hip, f"Stream{verb}Value{bits}") for verb in ("Wait", "Write"))
    array[0] = array[1] = 0xF0
    word = address if bits == 32 else address + 8
    ctypes.memset(word, 0, 8)
    wait(stream, word, 2, HIP["hipStreamWaitValueEq"], 3)
    write(stream, address + 40, 1, 0)
    assert array[10] == 10
    write(other, word, 0xF6, 0)  # its last two bits are 2
    hip.StreamSynchronize(stream)
    assert array[10] == 1
    wait(stream, word, 4, HIP["hipStreamWaitValueAnd"], 4)
    wait(stream, word, 0xF6, HIP["hipStreamWaitValueGte"], 0xFF)
    hip.StreamSynchronize(stream)
    hip.StreamDestroy(other)
    hip.Free(address)


def test_callbacks(hip: Hip, stream: int) -> None:
    called = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    function = kind(lambda *arguments: called.append(arguments))
    hip.StreamAddCallback(stream, ctypes.cast(function, ctypes.c_void_p), 5, 0)
    hip.StreamSynchronize(stream)
    assert called == [(stream, 0, 5)]


class FillCopyLaunch:
    """A graph of HIP: a fill of 8 numbers with 5, a copy of them, and a launch on the copy."""

    def __init__(self, hip: Hip, function: int) -> None:
        self.hip = hip
        self.source, self.numbers = hip.numbers()
        self.target, self.found = hip.numbers()
        self.graph = hip.make("GraphCreate", 0)
        self.fill = HIP.get_struct("hipMemsetParams")()
        self.fill.dst, self.fill.elementSize, self.fill.value = self.source, 4, 5
        self.fill.width, self.fill.height = 8, 1
        self.filled = self.add("MemsetNode", [], ctypes.byref(self.fill))
        line = (self.target, self.source, 32, HIP["hipMemcpyDefault"])
        self.copied = self.add("MemcpyNode1D", [self.filled], *line)
        self.pointers, self.values = arguments_of(self.target, 2, 1)
        self.launch = launch_params(hip, function, self.pointers)
        self.launched = self.add("KernelNode", [self.copied], ctypes.byref(self.launch))

    def add(self, name: str, before: list[int], *parameters: Any) -> int:
        edges = (ctypes.c_void_p * len(before))(*before)
        return self.hip.make(f"GraphAdd{name}", self.graph, edges, len(before), *parameters)

    def run(self, executable: int, stream: int) -> list[int]:
        ctypes.memset(self.target, 0, 4 * COUNT)
        self.hip.GraphLaunch(executable, stream)
        self.hip.StreamSynchronize(stream)
        return self.found[:9]


def test_graphs(hip: Hip, stream: int, scale: int) -> None:
    graph = FillCopyLaunch(hip, scale)
    executable = hip.make("GraphInstantiateWithFlags", graph.graph, 0)
    assert graph.run(executable, stream) == [11] * 8 + [1]
    graph.values[1].value = 3
    hip.GraphExecKernelNodeSetParams(executable, graph.launched, ctypes.byref(graph.launch))
    graph.fill.value = 1
    hip.GraphExecMemsetNodeSetParams(executable, graph.filled, ctypes.byref(graph.fill))
    assert graph.run(executable, stream) == [4] * 8 + [1]
    line = (graph.target, graph.source, 16)
    change = hip.table.hipGraphExecMemcpyNodeSetParams1D
    kinds = HIP["hipMemcpyDeviceToDevice"], HIP["hipMemcpyDefault"]
    codes = [change(executable, graph.copied, *line, kind) for kind in kinds]
    assert codes == [HIP.codes["hipErrorInvalidValue"], 0]  # the kind of a copy stays
    assert graph.run(executable, stream) == [4] * 4 + [1] * 5
    wrong = HIP.codes["hipErrorInvalidValue"]
    for size, source in ((0, graph.source), (4, graph.target)):
        assert change(executable, graph.copied, graph.target, source, size, 4) == wrong
    assert hip.table.hipGraphInstantiateWithFlags(ctypes.byref(ctypes.c_void_p()), graph.graph, 2)
    hip.GraphExecDestroy(executable)


def test_nodes_are_switched_off(hip: Hip, stream: int, scale: int) -> None:
    graph = FillCopyLaunch(hip, scale)
    empty = graph.add("EmptyNode", [])
    executable = hip.make("GraphInstantiateWithFlags", graph.graph, 8)
    switch = hip.table.hipGraphNodeSetEnabled
    if hip.driver.version < (5, 3):
        assert switch(executable, graph.launched, 0) == HIP.codes["hipErrorNotSupported"]
        return
    assert switch(executable, graph.launched, 0) == 0
    assert graph.run(executable, stream) == [5] * 8 + [0]
    assert switch(executable, empty, 0) == HIP.codes["hipErrorInvalidValue"]
    hip.GraphExecDestroy(executable)


def test_a_whole_graph_is_updated(hip: Hip, stream: int, scale: int) -> None:
    graph, other = FillCopyLaunch(hip, scale), FillCopyLaunch(hip, scale)
    executable = hip.make("GraphInstantiateWithFlags", graph.graph, 0)
    clone = hip.make("GraphClone", other.graph)
    node, result = ctypes.c_void_p(), ctypes.c_uint32()
    hip.GraphExecUpdate(executable, clone, ctypes.byref(node), ctypes.byref(result))
    assert result.value == HIP["hipGraphExecUpdateSuccess"]
    graph.run(executable, stream)
    assert other.found[:2] == [11, 11] and graph.found[:2] == [0, 0]
    other.add("EmptyNode", [other.launched])
    more = (other.graph, ctypes.byref(node), ctypes.byref(result))
    code = hip.table.hipGraphExecUpdate(executable, *more)
    assert code == HIP.codes["hipErrorGraphExecUpdateFailure"]
    assert result.value == HIP["hipGraphExecUpdateErrorTopologyChanged"]
    hip.GraphExecDestroy(executable)
