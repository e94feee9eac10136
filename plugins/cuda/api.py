"""CUDA as an API of the adapter (sdk/gpu/api.py). hip/api.py is the other one."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from ...loader.cuda.abi import CUDA, NAMES, CudaError, check
from ...loader.cuda.driver import CudaDriver, cuda
from ..sdk.gpu.api import ApiDevice, CopyPlace, GpuApi, GpuSet
from ..sdk.rectangles import Rect

_Copy: Any = CUDA.get_struct("CUDA_MEMCPY3D")
_Set: Any = CUDA.get_struct("CUDA_MEMSET_NODE_PARAMS")
_Launch: Any = CUDA.get_struct("CUDA_KERNEL_NODE_PARAMS")
_Attribute: Any = CUDA.get_struct("CUlaunchAttribute")
_Config: Any = CUDA.get_struct("CUlaunchConfig")
_Location: Any = CUDA.get_struct("CUmemLocation")
_Properties: Any = CUDA.get_struct("CUmemAllocationProp")
_Access: Any = CUDA.get_struct("CUmemAccessDesc")
_Pool: Any = CUDA.get_struct("CUmemPoolProps")
_HOST: Final = CUDA["CU_MEMORYTYPE_HOST"]
_DEVICE: Final = CUDA["CU_MEMORYTYPE_DEVICE"]
_ARRAY: Final = CUDA["CU_MEMORYTYPE_ARRAY"]


class CudaApi(GpuApi):
    """The CUDA driver API."""

    name, vendor, backend = "CUDA", "NVIDIA Corporation", "UR_BACKEND_CUDA"
    abi, error, names = CUDA, CudaError, NAMES
    targets = "nvptx64", "native_code_nvptx64"
    extra: ClassVar[Mapping[str, Any]] = {
        "VERSION": lambda device: "{}.{}".format(*device.found.capability),
        "BACKEND_RUNTIME_VERSION": lambda device: "{}.{}".format(*device.found.capability),
        "VENDOR_ID": 0x10DE,
        "MEMORY_EXPORT_EXPORTABLE_DEVICE_MEM_EXP": lambda device: bool(
            device.query_attribute("HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED")
        ),
    }
    widest_element, widest_pattern = 4, 128
    logs, asks_for_local, edge_kinds = True, 48 << 10, (None,)
    context_calls = "cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"
    contexts_are_devices = False
    shared_memory = CUDA.get_struct("CUipcMemHandle")
    shared_event = CUDA.get_struct("CUipcEventHandle")

    def open(self) -> CudaDriver:
        return cuda()

    def get_constant(self, name: str) -> int:
        return CUDA[name]

    @contextmanager
    def make_current(self, device: ApiDevice) -> Iterator[None]:
        table = device.table
        check(table.cuCtxPushCurrent_v2(device.context), "cuCtxPushCurrent")
        try:
            yield
        finally:
            table.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def call_host(self, device: ApiDevice, stream: int, function: int, data: int) -> int:
        return device.table.cuLaunchHostFunc(stream, function, data)

    def query_image_limit(self, device: ApiDevice, name: str) -> int:
        """Return the limit of surfaces, which textures have at least."""
        return device.query_attribute(f"MAXIMUM_SURFACE{name}")

    def get_peer(self, device: ApiDevice) -> int:
        return device.context

    def is_stream_of(self, stream: int, device: ApiDevice) -> bool:
        found = ctypes.c_void_p()
        with self.make_current(device):
            check(device.table.cuStreamGetCtx(stream, ctypes.byref(found)), "cuStreamGetCtx")
        return found.value == device.context

    def list_copy_arguments(self, target: int, source: int, size: int) -> tuple[int, ...]:
        return target, source, size

    def make_copy(self, target: CopyPlace, source: CopyPlace, region: Rect) -> Any:
        made = _Copy()
        for prefix, place in (("src", source), ("dst", target)):
            if place.array:
                setattr(made, f"{prefix}MemoryType", _ARRAY)
                setattr(made, f"{prefix}Array", place.array)
                for name, start in zip(("XInBytes", "Y", "Z"), place.origin, strict=True):
                    setattr(made, f"{prefix}{name}", start)
                continue
            start, row, slice_ = place.find_start(region)
            setattr(made, f"{prefix}MemoryType", _DEVICE if place.on_device else _HOST)
            setattr(made, f"{prefix}{'Device' if place.on_device else 'Host'}", start)
            if region[1:] != (1, 1):  # a single row may be longer than any pitch
                setattr(made, f"{prefix}Pitch", row)
                setattr(made, f"{prefix}Height", slice_ // row)
        made.WidthInBytes, made.Height, made.Depth = region
        return made

    def make_set(self, one: GpuSet) -> Any:
        return _Set(*one)

    def make_launch(self, function: int, grid: Any, block: Any, shared: int, pointers: int) -> Any:
        return _Launch(function, *grid, *block, shared, pointers)

    def make_cluster_launch(
        self, shape: Sequence[int], stream: int, cluster: Sequence[int], together: bool
    ) -> Any:
        rows = (_Attribute * (1 + together))()
        rows[0].id = CUDA["CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"]
        (ctypes.c_uint32 * 3).from_buffer(rows[0].value)[:] = cluster
        if together:
            rows[1].id = CUDA["CU_LAUNCH_ATTRIBUTE_COOPERATIVE"]
            rows[1].value[0] = 1
        made = _Config(*shape, stream, ctypes.addressof(rows), len(rows))
        made.keep = rows
        return ctypes.byref(made)

    def list_node_context(self, device: ApiDevice) -> tuple[int, ...]:
        return (device.context,)

    def list_location(self, number: int | None) -> tuple[Any, ...]:
        kind = "HOST" if number is None else "DEVICE"
        return (_Location(CUDA[f"CU_MEM_LOCATION_TYPE_{kind}"], number or 0),)

    def list_prefetch_location(self, number: int | None) -> tuple[Any, ...]:
        return *self.list_location(number), 0

    def is_host_memory(self, device: ApiDevice, kind: int) -> bool:
        return kind == _HOST

    def make_pool_properties(self, device: ApiDevice) -> Any:
        kind, none = CUDA["CU_MEM_ALLOCATION_TYPE_PINNED"], CUDA["CU_MEM_HANDLE_TYPE_NONE"]
        return _Pool(kind, none, *self.list_location(device.native))

    def make_physical_properties(self, device: ApiDevice) -> Any:
        made = _Properties()
        made.type, (made.location,) = (
            CUDA["CU_MEM_ALLOCATION_TYPE_PINNED"],
            self.list_location(device.native),
        )
        return made

    def find_opening_flags(self, device: ApiDevice) -> int:
        return CUDA["CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS"]

    def make_access(self, device: ApiDevice, flags: int) -> Any:
        return _Access(*self.list_location(device.native), flags)


API: Final[GpuApi] = CudaApi()
