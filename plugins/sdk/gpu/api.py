"""What differs between CUDA's driver functions and HIP's, for one adapter on both.

Functions have neutral names, those of CUDA without "cu" and "_v2". Constants have CUDA's names.

| what | CUDA | HIP |
|---|---|---|
| functions, constants | their names | other names, other numbers of attributes |
| the context of a thread | a stack | the number of a device |
| another device, for peer access | its context | its number |
| the device of a stream | its context | its number, from HIP 6 on |
| a copy of bytes | no kind | a kind: HIP finds out |
| rows set at once | of 1, 2 or 4 bytes each | of single bytes |
| nodes that copy or set | the context as a parameter | no context |
| dependencies of a capture | with kinds of edges | without |
| limits of images | those of surfaces | those of textures, and no arrays of images |
| copies of arrays | in bytes | in pixels |
| places, for prefetches and advice | a struct | a number, -1 for the host |
| a host task | a function of the host | before HIP 5.3 one with other parameters |
| local memory of more than 48 KiB | asked for | needs no request |
| parameters of a kernel | the driver tells them | the code object tells them |
| structs | CUDA's | HIP's, of several versions |

`GpuApi` has a method or an attribute for each. cuda/api.py and hip/api.py implement it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

from ....loader.base.abi import Api
from ....loader.base.errors import CodeError
from ..rectangles import Rect


class GpuDriver(Protocol):
    """An open driver, as a loader gives it.

    Attributes:
        table: its functions, under the names that it exports.
        version: the version of its API, major and minor.
    """

    library: Any
    table: Any
    version: tuple[int, int]

    @property
    def devices(self) -> tuple[Any, ...]: ...


class ApiDevice(Protocol):
    """A device of the adapter. `native` is its number, `table` the driver's functions."""

    native: int
    table: Any
    platform: Any
    context: cached_property[int]  # the handle of its primary context

    def query_attribute(self, name: str) -> int:
        """Return an attribute by CUDA's name, without CU_DEVICE_ATTRIBUTE_. Raises DriverError."""
        ...

    def has(self, name: str) -> bool:
        """Return whether the driver has a function, by its neutral name."""
        ...


class GpuSet(NamedTuple):
    """A set of memory.

    Attributes:
        pitch: bytes from a row to the next.
        elementSize: its bytes: 1, 2 or 4.
        width: elements of a row.
        height: rows.
    """

    dst: int
    pitch: int
    value: int
    elementSize: int
    width: int
    height: int


class CopyPlace(NamedTuple):
    """One end of a copy.

    Attributes:
        on_device: whether it is the device's memory or managed.
        origin: the first byte in a row, the first row, and the first slice.
        row: bytes from a row to the next, 0 for the copy's width.
        slice: bytes from a slice to the next, 0 for the copy's rows.
        array: the CUarray that it is instead of memory, or 0.
        pixel: bytes of a pixel of the array.
    """

    address: int
    on_device: bool
    origin: Rect = (0, 0, 0)
    row: int = 0
    slice: int = 0
    array: int = 0
    pixel: int = 1

    def find_start(self, region: Rect) -> tuple[int, int, int]:
        """Return the first byte of a region, its row's and its slice's bytes."""
        row = self.row or region[0]
        slice_ = self.slice or row * region[1]
        x, y, z = self.origin
        return self.address + x + y * row + z * slice_, row, slice_


class GpuApi(ABC):
    """An API of a GPU's driver.

    Attributes:
        name: what messages call it.
        backend: the ur_backend_t, as a name.
        names: the functions that it exports, by their neutral names.
        targets: the targets of binaries that it takes, the best first.
        extra: answers of urDeviceGetInfo that differ from CUDA's, without their prefix.
        widest_element: bytes of an element of which rows are set at once.
        widest_pattern: bytes of a pattern that is set in columns. A longer one is copied.
        logs: whether the driver writes a log when it loads a program.
        asks_for_local: bytes of local memory from which on a kernel has to ask, 0: never.
        edge_kinds: what functions about the dependencies of a capture take for kinds of edges.
        context_calls: the functions that tell a thread's context, that make another one it, and
            that go back.
        contexts_are_devices: whether these take and give numbers of devices.
        shared_memory, shared_event: the structs of handles for other processes.
    """

    name: ClassVar[str]
    vendor: ClassVar[str]
    backend: ClassVar[str]
    abi: ClassVar[Api]
    error: ClassVar[type[CodeError]]
    names: ClassVar[Mapping[str, str]]
    targets: ClassVar[tuple[str, ...]]
    extra: ClassVar[Mapping[str, Any]]
    widest_element: ClassVar[int]
    widest_pattern: ClassVar[int]
    logs: ClassVar[bool]
    asks_for_local: ClassVar[int]
    edge_kinds: ClassVar[tuple[None, ...]]
    context_calls: ClassVar[tuple[str, str, str]]
    contexts_are_devices: ClassVar[bool]
    shared_memory: ClassVar[Any]
    shared_event: ClassVar[Any]

    @abstractmethod
    def open(self) -> Any:
        """Return the driver (`GpuDriver`). Raises FairleadError if there is none."""

    @abstractmethod
    def get_constant(self, name: str) -> int:
        """Return a constant by CUDA's name. Raises KeyError if the API does not have it."""

    # contexts

    @abstractmethod
    def make_current(self, device: ApiDevice) -> AbstractContextManager[None]:
        """Make a device's context that of this thread, in a block."""

    @abstractmethod
    def call_host(self, device: ApiDevice, stream: int, function: int, data: int) -> int:
        """Let a stream call a function of the host, and return the driver's code.

        Args:
            function: a function's address. It takes one address.
            data: what it is called with.
        """

    @abstractmethod
    def get_peer(self, device: ApiDevice) -> int:
        """Return what functions for peer access take of the other device."""

    @abstractmethod
    def is_stream_of(self, stream: int, device: ApiDevice) -> bool:
        """Return whether a stream belongs to a device. Raises `error` for an invalid stream."""

    @abstractmethod
    def query_image_limit(self, device: ApiDevice, name: str) -> int:
        """Return a limit of images in pixels, 0 if the device has none of this type.

        Args:
            name: such as "2D_WIDTH" or "1D_LAYERED_LAYERS".
        """

    # parameters

    @abstractmethod
    def list_copy_arguments(self, target: int, source: int, size: int) -> tuple[Any, ...]:
        """Return what MemcpyAsync takes before the stream."""

    @abstractmethod
    def make_copy(self, target: CopyPlace, source: CopyPlace, region: Rect) -> Any:
        """Return the parameters of a copy of rows, for streams and nodes.

        Args:
            region: the width in bytes, the rows, the slices.
        """

    @abstractmethod
    def make_set(self, one: GpuSet) -> Any:
        """Return the parameters of a node that sets memory."""

    @abstractmethod
    def make_launch(self, function: int, grid: Any, block: Any, shared: int, pointers: int) -> Any:
        """Return the parameters of a node that launches a kernel.

        Args:
            grid: work-groups in each dimension.
            block: work-items of a work-group in each dimension.
            shared: bytes of dynamic local memory.
            pointers: the address of an array with the addresses of the arguments.
        """

    def make_cluster_launch(
        self, shape: Sequence[int], stream: int, cluster: Sequence[int], together: bool
    ) -> Any:
        """Return the parameters of a launch with clusters. Only CUDA has them.

        Args:
            shape: grid, block, and bytes of local memory, as a launch takes them.
            cluster: work-groups of a cluster in each dimension.
            together: whether all work-groups run at the same time.
        """
        raise NotImplementedError

    @abstractmethod
    def list_node_context(self, device: ApiDevice) -> tuple[int, ...]:
        """Return what nodes that copy or set take behind their parameters."""

    @abstractmethod
    def list_location(self, number: int | None) -> tuple[Any, ...]:
        """Return what MemAdvise takes of a place. `number`: a device's, None for the host."""

    @abstractmethod
    def list_prefetch_location(self, number: int | None) -> tuple[Any, ...]:
        """Return what MemPrefetchAsync takes of a place. `number`: see `list_location`."""

    # memory

    @abstractmethod
    def is_host_memory(self, device: ApiDevice, kind: int) -> bool:
        """Return whether the answer to POINTER_ATTRIBUTE_MEMORY_TYPE means host memory."""

    @abstractmethod
    def make_pool_properties(self, device: ApiDevice) -> Any:
        """Return the struct of a pool of a device's memory."""

    @abstractmethod
    def make_physical_properties(self, device: ApiDevice) -> Any:
        """Return the properties of physical memory of a device."""

    @abstractmethod
    def find_opening_flags(self, device: ApiDevice) -> int:
        """Return what IpcOpenMemHandle takes for flags."""

    @abstractmethod
    def make_access(self, device: ApiDevice, flags: int) -> Any:
        """Return the access of a device to mapped memory. `flags`: CU_MEM_ACCESS_FLAGS_PROT_…"""
