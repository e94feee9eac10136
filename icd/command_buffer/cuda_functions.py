"""Kernels of NVIDIA's OpenCL as functions of CUDA: translated, compiled, and kept while used.

The text of a program (icd/nvidia_ptx.py) depends on the launch: on the global offset, and in some
programs on the number of dimensions. Arguments that are Parameters are loaded from memory, so that
a change is one small copy for all launches. So a kernel has a row for each of these that its
launches have. A module is compiled once and shared by all graphs that use it.
"""

from __future__ import annotations

import ctypes
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary, finalize

from ...loader.base.errors import FairleadError, explain_error
from ...loader.base.forks import make_lock
from ...loader.cuda.abi import CUDA, check
from .._native import ffi, lib
from ..calls import get_address, query_bytes, query_kernel_name, query_program
from ..cuda_sharing import SharedDevice
from ..nvidia_ptx import PtxError, PtxKernel, PtxProgram, Variant, make_loading_name
from ..program_binaries import query_device_binary
from .commands import CommandList

_KINDS: Final = {
    "value": lib.FL_CUDA_VALUE,
    "memory": lib.FL_CUDA_MEMORY,
    "local": lib.FL_CUDA_LOCAL,
}
_WORK_DIM_BIT: Final = 1 << 3
#: More translations of one program than this are not compiled for one graph.
_MOST_VARIANTS: Final = 32

#: OpenCL's build options that are options of CUDA's compiler, too.
_OPTIONS: Final = (
    (re.compile(rb"-cl-nv-maxrregcount[= ](\d+)"), "CU_JIT_MAX_REGISTERS"),
    (re.compile(rb"-cl-nv-opt-level[= ](\d+)"), "CU_JIT_OPTIMIZATION_LEVEL"),
)


class CudaModule:
    """A translated program on a device. Raises CudaError if CUDA does not compile it."""

    def __init__(
        self, device: SharedDevice, text: str, options: tuple[tuple[str, int], ...]
    ) -> None:
        self._device, module = device, ctypes.c_void_p()
        names = (ctypes.c_uint32 * len(options))(*(CUDA[name] for name, _ in options))
        values = (ctypes.c_void_p * len(options))(*(value for _, value in options))
        image = ctypes.create_string_buffer(text.encode())
        with device:
            code = device.table.cuModuleLoadDataEx(
                ctypes.byref(module), image, len(options), names, values
            )
        check(code, "cuModuleLoadDataEx")
        self._handle = module.value or 0
        finalize(self, _unload, device, self._handle).atexit = False

    def function(self, name: str) -> tuple[int, int]:
        """Return a kernel's CUfunction, and the most threads that a group of it has.

        Raises:
            CudaError: there is none.
        """
        function, most = ctypes.c_void_p(), ctypes.c_int()
        table = self._device.table
        with self._device:
            code = table.cuModuleGetFunction(ctypes.byref(function), self._handle, name.encode())
            check(code, "cuModuleGetFunction", f"({name})")
            what = CUDA["CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK"]
            code = table.cuFuncGetAttribute(ctypes.byref(most), what, function)
            check(code, "cuFuncGetAttribute", f"({name})")
        return function.value or 0, most.value


def _unload(device: SharedDevice, handle: int) -> None:
    if device.lost is None:
        with device:
            device.table.cuModuleUnload(handle)


_modules: Final[WeakValueDictionary[tuple[Any, ...], CudaModule]] = WeakValueDictionary()
#: The last ones live on, because the next graph often has the same kernels.
_recent: Final[deque[CudaModule]] = deque(maxlen=16)
_lock: Final = make_lock()


class _CudaLaunch(NamedTuple):
    """What the row of a launch depends on. `cells` has a bit for each argument that is a
    Parameter's. `lets_start`: the next launch is best started while this one runs. `place`: its
    device's."""

    place: int
    kernel: int
    work_dim: int
    offset: tuple[int, int, int]
    cells: int
    lets_start: bool


class _LaunchPart(NamedTuple):
    """A part of a launch (`fl_cuda_part`)."""

    first: tuple[int, int, int]
    groups: tuple[int, int, int]
    local: tuple[int, int, int]


class _CudaProgram:
    """A program of OpenCL's, and its translations.

    Attributes:
        loads: what its translations have beside its kernels (`Variant.loads`). No more comes to it
            after the first translation.
    """

    def __init__(self, handle: int, device: SharedDevice) -> None:
        self._device, self.why_not = device, ""
        self.loads: set[tuple[str, int]] = set()
        self._modules: dict[Variant, CudaModule] = {}
        self.options = _parse_options(handle, device.opencl)
        try:
            self.ptx: PtxProgram | None = PtxProgram(query_ptx(handle, device.opencl))
        except (PtxError, FairleadError) as error:
            self.ptx, self.why_not = None, str(error)

    def kernel(self, name: str) -> PtxKernel:
        """Return a kernel of the program. Raises FairleadError if CUDA cannot run it."""
        found = self.ptx.kernels.get(name) if self.ptx else None
        if found is None or found.why_not:
            why_not = self.why_not or (found and found.why_not)
            raise FairleadError(why_not or "its program's binary lacks it")
        return found

    def module(self, variant: Variant) -> CudaModule:
        """Return the module of a variant. Raises FairleadError if there is none."""
        assert self.ptx is not None
        variant = replace(variant, loads=tuple(sorted(self.loads)))
        if variant not in self._modules:
            if len(self._modules) == _MOST_VARIANTS:
                raise FairleadError("its launches have too many different offsets")
            key = id(self._device), self.ptx.text, variant, self.options
            with _lock:
                made = _modules.get(key)
                if made is None:
                    text = self.ptx.translate(variant)
                    made = _modules[key] = CudaModule(self._device, text, self.options)
                    _recent.append(made)
            self._modules[variant] = made
        return self._modules[variant]


class CudaFunctions:
    """What C knows of the kernels of commands: an array of `fl_cuda_function`.

    Args:
        commands: the commands. Kernels that launches may come to have are among them.
        devices: where they run, each once: those of `commands.devices`.

    Attributes:
        devices: see above.
        native: what C knows, an `fl_cuda_functions *`.
        why_not: why a kernel has no function of CUDA's, by its handle.
        kept: what has to live as long as the functions are used.
    """

    def __init__(self, commands: CommandList, devices: Sequence[SharedDevice]) -> None:
        self.why_not: dict[int, str] = {}
        self.kept: list[Any] = []
        self._programs: dict[tuple[int, int], _CudaProgram] = {}
        self.devices = devices
        places = {device.opencl: place for place, device in enumerate(devices)}
        self._places = [places[one] for one in commands.devices]
        arrays = ffi.new("fl_cuda_device *[]", [device.native for device in devices])
        of_queues = ffi.new("uint32_t[]", self._places)
        self.native: Any = ffi.new("fl_cuda_functions *")
        self.native.devices, self.native.device_count = arrays, len(devices)
        self.native.place_of = of_queues
        self.kept.append((arrays, of_queues))
        launches = list(self._list_launches(commands))
        for launch in launches:
            self._note_loads(launch)
        self._add(list(map(self._make_row, launches)))
        parts = dict.fromkeys(self._list_parts(commands))
        if parts:
            self._add([*self._rows, *(self._make_row(launch, part) for launch, part in parts)])

    def _add(self, rows: list[dict[str, Any]]) -> None:
        self._rows, self._array = rows, ffi.new("fl_cuda_function[]", rows)
        self.native.list, self.native.count = self._array, len(rows)

    def find_places(self, commands: CommandList) -> list[int]:
        """Return the place of each command's device in `devices`; nothing if there is only one."""
        if len(self.devices) == 1:
            return []
        return [self._places[commands.array[number].queue] for number in range(len(commands))]

    def _list_parts(self, commands: CommandList) -> Iterator[tuple[_CudaLaunch, _LaunchPart]]:
        """Yield the parts of launches that have too many work-groups for CUDA."""
        array, count, number = commands.array, len(commands), 0
        found, many = ffi.new("fl_cuda_part[]", lib.FL_CUDA_MOST_PARTS), ffi.new("uint32_t *")
        given = self.native, array, count
        while (number := lib.fl_find_in_parts(*given, number, found, many)) < count:
            launch = self._read_launch(array + number, commands.updatable, lets_start=False)
            for part in found[0 : many[0]]:
                first, groups, local = map(tuple, (part.first, part.groups, part.local))
                yield launch, _LaunchPart(first, groups, local)
            number += 1

    def _note_loads(self, launch: _CudaLaunch) -> None:
        """A program's translation has what all launches need of it."""
        if not launch.cells:
            return
        program, name = self._get_program(launch), query_kernel_name(launch.kernel)
        with suppress(FairleadError):  # `_make_row` raises it
            loads = launch.cells & _mark_loadable(program.kernel(name))
            program.loads |= {(name, loads)} if loads else set()

    def _make_row(self, launch: _CudaLaunch, part: _LaunchPart | None = None) -> dict[str, Any]:
        row: dict[str, Any] = {
            "kernel": ffi.cast("void *", launch.kernel),
            "place": launch.place,
        }
        try:
            row |= self._find_function(launch, part)
        except FairleadError as error:
            name = query_kernel_name(launch.kernel)
            self.why_not[launch.kernel] = f"the kernel {name}: {explain_error(error)}"
        return row

    def _find_function(self, launch: _CudaLaunch, part: _LaunchPart | None) -> Mapping[str, Any]:
        program, early_threads = self._get_program(launch), self.devices[launch.place].early_threads
        found = program.kernel(query_kernel_name(launch.kernel))
        assert program.ptx is not None
        waits = not part and early_threads > 0 and program.ptx.can_wait
        lets = waits and launch.lets_start
        variant = program.ptx.variant(launch.work_dim, launch.offset)
        own = program.ptx.choose_part(variant, *part) if part else variant
        module = program.module(replace(own, waits=waits, lets_start=lets))
        loadable = _mark_loadable(found)
        loads = launch.cells & loadable
        function, most = module.function(make_loading_name(found.name, loads))
        asked = program.ptx.asks
        row = {
            "function": ffi.cast("void *", function),
            "parameter_count": len(found.parameters),
            "asks": sum(1 << place for place in range(3) if asked.offset[place])
            + _WORK_DIM_BIT * bool(asked.work_dim),
            "work_dim": variant.work_dim,
            "offset": variant.offset,
            "loadable": loadable,
            "loads": loads,
            "waits": waits,
            "lets_start": early_threads if lets else 0,
            "required": found.required or (0, 0, 0),
            "most_threads": most,
            **_describe_parameters(found),
            **({"part": part._asdict()} if part else {}),
        }
        self.kept.append((module, row))
        return row

    def _get_program(self, launch: _CudaLaunch) -> _CudaProgram:
        program, place = query_program(launch.kernel), launch.place
        if (program, place) not in self._programs:
            self._programs[program, place] = _CudaProgram(program, self.devices[place])
        return self._programs[program, place]

    def _read_launch(self, row: Any, updatable: bool, *, lets_start: bool) -> _CudaLaunch:
        place = self._places[row.queue]
        dimensions = row.work_dim if row.has_offset else 0
        x, y, z = (row.n[i] if i < dimensions else 0 for i in range(3))
        cells = lib.fl_cell_bits(row.arguments) if updatable else 0
        most = self.devices[place].early_threads if lets_start else 0
        lets = bool(lib.fl_lets_start(row, most))
        return _CudaLaunch(place, get_address(row.kernel), row.work_dim, (x, y, z), cells, lets)

    def _list_launches(self, commands: CommandList) -> Iterable[_CudaLaunch]:
        """The different launches of commands.

        A kernel that a launch may come to have is taken with the shapes of all launches.
        """
        array, updatable, count = commands.array, commands.updatable, len(commands)
        different = ffi.new("uint32_t[]", count + 1)
        count = lib.fl_find_launches(self.native, array, count, updatable, different)
        found = dict.fromkeys(
            self._read_launch(array + number, updatable, lets_start=True)
            for number in ffi.unpack(different, count)
        )
        shapes = sorted({one._replace(kernel=0) for one in found})
        for kernel in commands.alternatives:
            found.update(dict.fromkeys(one._replace(kernel=kernel) for one in shapes))
        return found


def query_ptx(program: int, device: int) -> str:
    """Return the PTX that is the binary of a program for a device (handles).

    Raises:
        FairleadError: the driver does not give it.
    """
    return query_device_binary(program, device).rstrip(b"\0").decode(errors="replace")


def _parse_options(program: int, device: int) -> tuple[tuple[str, int], ...]:
    """The options of CUDA's compiler that a program was built with."""
    query = "CL_PROGRAM_BUILD_OPTIONS"  # they only change speed here, so an answer may lack
    given = query_bytes(program, "clGetProgramBuildInfo", query, device) or b""
    found = ((name, pattern.search(given)) for pattern, name in _OPTIONS)
    return tuple((name, int(match[1])) for name, match in found if match)


def _describe_parameters(kernel: PtxKernel) -> dict[str, Any]:
    parameters = kernel.parameters
    return {
        "kinds": ffi.new("uint8_t[]", [_KINDS[one.kind] for one in parameters]),
        "sizes": ffi.new("uint32_t[]", [one.size for one in parameters]),
        "alignments": ffi.new("uint32_t[]", [one.align for one in parameters]),
    }


def _mark_loadable(kernel: PtxKernel) -> int:
    """A bit for each of the first parameters that may lie in memory."""
    parameters = kernel.parameters[: lib.FL_CUDA_MOST_LOADS]
    return sum(1 << place for place, one in enumerate(parameters) if one.loadable)
