"""What all sequences of calls share: the library, the devices, host memory, and costly objects."""

from __future__ import annotations

import ctypes
import gc
import os
import random
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from fairlead.icd.abi import OPENCL
from fairlead.loader.base.memory import read_word
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR
from fairlead.plugins.sdk.objects import Object
from helpers.fuzz.library import Library, array
from helpers.fuzz.model import SOURCE, Context
from helpers.memory_calls import struct
from helpers.usm_ways import forget_answers

_KINDS: Final = {
    "host": "UR_DEVICE_INFO_USM_HOST_SUPPORT",
    "device": "UR_DEVICE_INFO_USM_DEVICE_SUPPORT",
    "shared": "UR_DEVICE_INFO_USM_SINGLE_SHARED_SUPPORT",
}
_ROOM: Final = 1 << 23  # bytes of host memory for a sequence
_PIECE, _PIECES = 1 << 16, 32  # bytes, and how many


class Host:
    """Host memory that calls may be given. It is taken back when a sequence ends.

    The used part ends well before the whole, so that a size that is a little too large does no
    harm.
    """

    def __init__(self) -> None:
        self._memory = (ctypes.c_char * (_ROOM + (_PIECES + 4) * _PIECE))()
        self._scratch = 0
        self._begin = (ctypes.addressof(self._memory) + 4095) & ~4095
        self._used = 0
        self._noise = random.Random(0)

    def reset(self) -> None:
        self._used = 0

    def scratch(self, size: int) -> int:
        """Memory whose contents nobody cares for; another one in the next few calls."""
        self._scratch = (self._scratch + 1) % _PIECES
        return self._begin + _ROOM + self._scratch * _PIECE

    def take(self, size: int, data: bytes | None = None) -> int:
        """The address of `size` bytes, with some data or with anything in them."""
        at = self._begin + self._used
        self._used += (size + 127) & ~63
        assert self._used <= _ROOM, "a sequence needs more host memory than there is"
        ctypes.memmove(at, data if data is not None else self._noise.randbytes(size), size)
        return at


@dataclass
class Base:
    """A context that is there for all sequences, with the program that is built in it."""

    context: int
    program: int


@dataclass
class Session:
    """One driver's device."""

    library: Library
    version: str  # of its platform, which no other driver has
    check_all: bool = False  # after every sequence, whether an object is left in Python
    adapter: int = 0
    platform: int = 0
    device: int = 0
    other: int = 0  # another driver's device
    host: Host = field(default_factory=Host)
    bases: dict[str, Base] = field(default_factory=dict)
    abroad: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, list[str]] = field(default_factory=dict)
    lasting: list[Object] = field(default_factory=list)  # objects of the adapter's own
    failing: list[str] = field(default_factory=list)  # the last sequence that failed

    def open(self) -> None:
        """Find the adapter and the devices, also after a shutdown, which no object survives."""
        self.bases.clear()
        self.abroad.clear()
        library, count = self.library, ctypes.c_uint32()
        self.adapter = library.make("urAdapterGet", "phAdapters", NumEntries=1)
        library.ok("urPlatformGet", hAdapter=self.adapter, pNumPlatforms=ctypes.byref(count))
        platforms = (ctypes.c_void_p * count.value)()
        library.ok(
            "urPlatformGet", hAdapter=self.adapter, NumEntries=count.value, phPlatforms=platforms
        )
        for platform in platforms:
            kind = UR["UR_DEVICE_TYPE_ALL"]
            device = library.make(
                "urDeviceGet", "phDevices", hPlatform=platform, DeviceType=kind, NumEntries=1
            )
            said = ctypes.create_string_buffer(256)
            what = UR["UR_PLATFORM_INFO_VERSION"]
            asked = {"propName": what, "propSize": 256, "pPropValue": said}
            library.ok("urPlatformGetInfo", hPlatform=platform, **asked)
            if said.value.decode() == self.version:
                self.platform, self.device = platform or 0, device
            else:
                self.other = device
        assert self.device and self.other, "two drivers are needed"
        library.ok(
            "urDeviceGetGlobalTimestamps", hDevice=self.device
        )  # the adapter may keep objects for it
        self.lasting = [thing for thing in gc.get_objects() if isinstance(thing, Object)]

    @cached_property
    def ways(self) -> tuple[str, ...]:
        """The values of FAIRLEAD_USM that the device can have."""
        found = list[str]()
        for way in ("intel", "svm", "buffer"):
            choose(way, "auto")
            found += [way] if self.supported() else []
        return tuple(found)

    def base(self, way: str) -> Base:
        """The context whose USM is `way`, which the environment names now."""
        if way not in self.bases:
            library = self.library
            context = library.make(
                "urContextCreate", "phContext", DeviceCount=1, phDevices=array(self.device)
            )
            il = ctypes.create_string_buffer(SOURCE, len(SOURCE))
            program = library.make(
                "urProgramCreateWithIL", "phProgram", hContext=context, pIL=il, length=len(SOURCE)
            )
            library.ok("urProgramBuild", hContext=context, hProgram=program)
            self.bases[way] = Base(context, program)
        return self.bases[way]

    def foreign(self) -> dict[str, int]:
        """An object of each kind of the other driver's, by its type; and "usm", an address."""
        if not self.abroad:
            present = os.environ["FAIRLEAD_USM"]
            os.environ["FAIRLEAD_USM"] = "auto"
            self.abroad = _objects_of(self.library, self.other)
            os.environ["FAIRLEAD_USM"] = present
        return self.abroad

    def supported(self) -> list[str]:
        """The kinds of USM that the device has in the way that the environment names."""
        way = os.environ["FAIRLEAD_USM"]
        if way not in self.kinds:
            ask = self.library.number
            self.kinds[way] = [
                kind
                for kind, name in _KINDS.items()
                if ask("urDeviceGetInfo", name, hDevice=self.device)
            ]
        return self.kinds[way]

    @property
    def known(self) -> set[int]:
        """The handles of objects that last."""
        return {
            handle for base in self.bases.values() for handle in (base.context, base.program)
        } | set(self.abroad.values())


def _objects_of(library: Library, device: int) -> dict[str, int]:
    context = library.make("urContextCreate", "phContext", DeviceCount=1, phDevices=array(device))
    queue = library.make("urQueueCreate", "phQueue", hContext=context, hDevice=device)
    flags = UR["UR_MEM_FLAG_READ_WRITE"]
    buffer = library.make("urMemBufferCreate", "phBuffer", hContext=context, flags=flags, size=256)
    il = ctypes.create_string_buffer(SOURCE, len(SOURCE))
    program = library.make(
        "urProgramCreateWithIL", "phProgram", hContext=context, pIL=il, length=len(SOURCE)
    )
    library.ok("urProgramBuild", hContext=context, hProgram=program)
    kernel = library.make("urKernelCreate", "phKernel", hProgram=program, pKernelName=b"store")
    event = library.make("urEnqueueEventsWait", "phEvent", hQueue=queue)
    library.ok("urQueueFinish", hQueue=queue)
    desc = struct("ur_exp_command_buffer_desc_t", "EXP_COMMAND_BUFFER_DESC")
    made = {"hContext": context, "hDevice": device, "pCommandBufferDesc": desc}
    pool = struct("ur_usm_pool_desc_t", "USM_POOL_DESC")
    return {
        "ur_device_handle_t": device,
        "ur_context_handle_t": context,
        "ur_queue_handle_t": queue,
        "ur_mem_handle_t": buffer,
        "ur_program_handle_t": program,
        "ur_kernel_handle_t": kernel,
        "ur_event_handle_t": event,
        "ur_exp_command_buffer_handle_t": library.make(
            "urCommandBufferCreateExp", "phCommandBuffer", **made
        ),
        "ur_usm_pool_handle_t": library.make(
            "urUSMPoolCreate", "ppPool", hContext=context, pPoolDesc=pool
        ),
        "usm": library.make(
            "urUSMDeviceAlloc", "ppMem", hContext=context, hDevice=device, size=256
        ),
    }


def driver_table(library: Library, context: Context) -> tuple[DispatchTable, int]:
    """The driver's own functions, and the cl_context."""
    native = library.make("urContextGetNativeHandle", "phNativeContext", hContext=context.handle)
    return DispatchTable(OPENCL, read_word(native) or 0), native


def choose(way: str, mode: str) -> None:
    """How the adapter is to have USM, and run command-buffers."""
    os.environ["FAIRLEAD_USM"], os.environ["FAIRLEAD_COMMAND_BUFFER"] = way, mode
    forget_answers()
