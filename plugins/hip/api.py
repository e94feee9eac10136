"""HIP as an API of the adapter (sdk/gpu/api.py). cuda/api.py is the other one.

HIP 6.0 changed layouts and numbers. The driver knows its version, so what depends on it is asked
of the driver of the device.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from ...loader.hip.abi import CONSTANTS, HIP, NAMES, HipError, check
from ...loader.hip.driver import HipDriver, hip
from ..sdk.gpu.api import ApiDevice, CopyPlace, GpuApi, GpuSet
from ..sdk.rectangles import Rect

_Copy: Any = HIP.get_struct("hipMemcpy3DParms")
_Pitched: Any = HIP.get_struct("hipPitchedPtr")
_Position: Any = HIP.get_struct("hipPos")
_Extent: Any = HIP.get_struct("hipExtent")
_Set: Any = HIP.get_struct("hipMemsetParams")
_Launch: Any = HIP.get_struct("hipKernelNodeParams")
_Sizes: Any = HIP.get_struct("dim3")
_Location: Any = HIP.get_struct("hipMemLocation")
_Access: Any = HIP.get_struct("hipMemAccessDesc")
_Pool: Any = HIP.get_struct("hipMemPoolProps")
_ANY_KIND: Final = HIP["hipMemcpyDefault"]


# void (void *data), of urEnqueueHostTaskExp
_Task: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
#: The host tasks that streams have not called yet, by numbers: function and data.
_tasks: Final[dict[int, tuple[int, int]]] = {}
_tokens: Final = itertools.count(1)


# void (hipStream_t, hipError_t, void *data)
@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
def _serve(stream: int | None, code: int, token: int) -> None:
    """Call a host task for hipStreamAddCallback."""
    function, data = _tasks.pop(token)
    _Task(function)(data)


class HipApi(GpuApi):
    """HIP, AMD's driver API."""

    name, vendor, backend = "HIP", "Advanced Micro Devices, Inc.", "UR_BACKEND_HIP"
    abi, error, names = HIP, HipError, NAMES
    targets = ("amdgcn",)
    extra: ClassVar[Mapping[str, Any]] = {
        "VERSION": lambda device: device.found.architecture,
        "BACKEND_RUNTIME_VERSION": lambda device: "{}.{}".format(*device.platform.driver.version),
        "VENDOR_ID": 0x1002,
    }
    widest_element, widest_pattern = 1, 32
    logs, asks_for_local, edge_kinds = False, 0, ()
    context_calls = "hipGetDevice", "hipSetDevice", "hipSetDevice"
    contexts_are_devices = True
    shared_memory = HIP.get_struct("hipIpcMemHandle_t")
    shared_event = HIP.get_struct("hipIpcEventHandle_t")

    def open(self) -> HipDriver:
        return hip()

    def get_constant(self, name: str) -> int:
        return HIP[CONSTANTS[name]]

    @contextmanager
    def make_current(self, device: ApiDevice) -> Iterator[None]:
        """Make a device that of this thread, in a block. HIP's contexts are devices."""
        table, before = device.table, ctypes.c_int()
        check(table.hipGetDevice(ctypes.byref(before)), "hipGetDevice")
        if before.value == device.native:
            yield
            return
        check(table.hipSetDevice(device.native), "hipSetDevice")
        try:
            yield
        finally:
            table.hipSetDevice(before.value)

    def call_host(self, device: ApiDevice, stream: int, function: int, data: int) -> int:
        """See GpuApi. Before HIP 5.3 streams call a function with other parameters."""
        if device.has("LaunchHostFunc"):
            return device.table.hipLaunchHostFunc(stream, function, data)
        token = next(_tokens)
        _tasks[token] = function, data
        code = device.table.hipStreamAddCallback(stream, _serve, token, 0)
        if code:
            del _tasks[token]
        return code

    def query_image_limit(self, device: ApiDevice, name: str) -> int:
        """Return the limit of textures. There are no arrays of images, and some GPUs have none."""
        driver, support = device.platform.driver, HIP["hipDeviceAttributeImageSupport"]
        if "LAYERED" in name or not driver.number("DeviceGetAttribute", support, device.native):
            return 0
        return device.query_attribute(f"MAXIMUM_TEXTURE{name}")

    def get_peer(self, device: ApiDevice) -> int:
        return device.native

    def is_stream_of(self, stream: int, device: ApiDevice) -> bool:
        """Return whether a stream belongs to a device. HIP 5 does not tell: it is believed."""
        found, driver = ctypes.c_int(), device.platform.driver
        if driver.generation < 6:
            with self.make_current(device):
                code = device.table.hipStreamQuery(stream)
            check(0 if code == HIP.codes["hipErrorNotReady"] else code, "hipStreamQuery")
            return True
        code = device.table.hipStreamGetDevice(stream, ctypes.byref(found))
        check(code, "hipStreamGetDevice")
        return found.value == device.native

    def list_copy_arguments(self, target: int, source: int, size: int) -> tuple[int, ...]:
        return target, source, size, _ANY_KIND

    def make_copy(self, target: CopyPlace, source: CopyPlace, region: Rect) -> Any:
        made, pixel = _Copy(), max(target.pixel, source.pixel)
        for prefix, place in (("src", source), ("dst", target)):
            if place.array:
                x, y, z = place.origin
                setattr(made, f"{prefix}Array", place.array)
                setattr(made, f"{prefix}Pos", _Position(x // pixel, y, z))
                continue
            start, row, slice_ = place.find_start(region)
            setattr(made, f"{prefix}Ptr", _Pitched(start, row, row, slice_ // row))
        made.extent, made.kind = _Extent(region[0] // pixel, *region[1:]), _ANY_KIND
        return made

    def make_set(self, one: GpuSet) -> Any:
        return _Set(one.dst, one.elementSize, one.height, one.pitch, one.value, one.width)

    def make_launch(self, function: int, grid: Any, block: Any, shared: int, pointers: int) -> Any:
        return _Launch(_Sizes(*block), None, function, _Sizes(*grid), pointers, shared)

    def list_node_context(self, device: ApiDevice) -> tuple[int, ...]:
        return ()

    def list_location(self, number: int | None) -> tuple[Any, ...]:
        return (HIP["hipCpuDeviceId"] if number is None else number,)

    def list_prefetch_location(self, number: int | None) -> tuple[Any, ...]:
        return self.list_location(number)

    def is_host_memory(self, device: ApiDevice, kind: int) -> bool:
        return kind == device.platform.driver.get_constant("hipMemoryTypeHost")

    def make_pool_properties(self, device: ApiDevice) -> Any:
        kind, none = HIP["hipMemAllocationTypePinned"], HIP["hipMemHandleTypeNone"]
        return _Pool(kind, none, self._make_location(device))

    def make_physical_properties(self, device: ApiDevice) -> Any:
        made = device.platform.driver.get_struct("hipMemAllocationProp")()
        made.type = HIP["hipMemAllocationTypePinned"]
        made.location = self._make_location(device)
        return made

    def find_opening_flags(self, device: ApiDevice) -> int:
        """Return hipIpcMemLazyEnablePeerAccess, which was 0 before HIP 6."""
        return int(device.platform.driver.generation >= 6)

    def make_access(self, device: ApiDevice, flags: int) -> Any:
        return _Access(self._make_location(device), flags)

    def _make_location(self, device: ApiDevice) -> Any:
        return _Location(HIP["hipMemLocationTypeDevice"], device.native)


API: Final[GpuApi] = HipApi()
