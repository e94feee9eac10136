"""What every object of the runtime has: an adapter, and a handle that is released with the object.

`RuntimeAdapter` is an open adapter as the runtime uses it. `adapter.call("urQueueFinish", queue)`
raises SYCLError. `adapter.obtain("urQueueCreate", …)` returns the handle that the function writes
to its last parameter. `adapter.ur` is the table of functions, for calls that must be quick.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ..loader.base.forks import call_in_child
from ..loader.base.interrupts import is_stoppable, mark_leaving_waits, protect_finalizers, run_aside
from ..loader.base.never_copied import NeverCopied
from ..loader.base.query import query
from ..loader.ur.abi import UR
from ..loader.ur.devices import decode
from .errors import Errc, SYCLError, check

if TYPE_CHECKING:
    from ..loader.ur.plugin import Plugin

#: `(c_void_p * n)` by n: made once each.
_arrays: Final[dict[int, Any]] = {}


def make_handle_array(handles: Sequence[int]) -> Any:
    """Return handles as a C array, None if there are none."""
    if not handles:
        return None
    kind = _arrays.get(len(handles))
    if kind is None:
        kind = _arrays[len(handles)] = ctypes.c_void_p * len(handles)
    return kind(*handles)


def make_struct(name: str, **fields: Any) -> Any:
    """Make a structure of the API. Its `stype` follows from its name."""
    made = UR.get_struct(name)(**fields)
    if hasattr(made, "stype"):
        made.stype = UR["UR_STRUCTURE_TYPE_" + name.removeprefix("ur_").removesuffix("_t").upper()]
    return made


class RuntimeAdapter:
    """An open Unified Runtime adapter: its functions, with errors as exceptions.

    Attributes:
        plugin: the loader's adapter.
        ur: the table of its functions.
        open: whether it can be called. It cannot after it was closed or the process began to end.
            Nor can it in a forked child, where the threads of its drivers are missing.
    """

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin
        self.ur = plugin.table
        self.open = not (plugin.closed or plugin.released)
        plugin.on_close(self._close)
        _adapters.append(self)
        protect_finalizers()

    def _close(self, _: object = None) -> None:
        self.open = False

    def check_open(self, routine: str) -> None:
        """Raise SYCLError (runtime) unless it is open."""
        if not self.open:
            raise SYCLError(
                Errc.runtime,
                f"{self.plugin.path} was closed, or opened before this process was forked",
                routine=routine,
                remedy='open it again; of multiprocessing\'s start methods use "spawn"',
            )

    def check(self, code: int, routine: str, detail: str = "", remedy: str = "") -> None:
        """Raise SYCLError if a function of the adapter failed, with the adapter's last error in
        this thread.

        Args:
            code: what the function returned.
            detail: follows the sentence of the code.
            remedy: what to do; by default what helps for the code.
        """
        if code:
            check(code, routine, detail, remedy, self._read_last_error)

    def _read_last_error(self) -> str:
        message, number = ctypes.c_char_p(), ctypes.c_int32()
        code = self.ur.urAdapterGetLastError(
            self.plugin.handles[0], ctypes.byref(message), ctypes.byref(number)
        )
        text = b"" if code or message.value is None else message.value
        return re.sub(r"^\[\w+\]: ", "", text.decode("utf-8", "replace"))

    @mark_leaving_waits
    def call(self, routine: str, *arguments: Any, detail: str = "") -> None:
        """Call a function. Raises SYCLError."""
        self.check_open(routine)
        self.check(getattr(self.ur, routine)(*arguments), routine, detail)

    def wait(self, routine: str, *arguments: Any, holder: object, detail: str = "") -> None:
        """Call a function that may take long. Ctrl-C ends the wait for it.

        Another thread calls it, unless the adapter looks for Ctrl-C itself.

        Args:
            routine: the name of the function.
            holder: what is to live as long as the function runs, also after Ctrl-C.
            detail: what to say if it fails.

        Raises:
            SYCLError: It failed.
            KeyboardInterrupt: Ctrl-C came. The function may still run.
        """

        def call() -> object:
            self.call(routine, *arguments, detail=detail)
            return holder

        if is_stoppable(self.plugin.path):
            call()
        else:
            run_aside(call)

    @mark_leaving_waits
    def obtain(self, routine: str, *arguments: Any, detail: str = "") -> int:
        """Call a function and return what it writes to its last parameter: a handle, an address.
        Raises SYCLError."""
        self.check_open(routine)
        made = ctypes.c_void_p()
        self.check(getattr(self.ur, routine)(*arguments, ctypes.byref(made)), routine, detail)
        return made.value or 0

    def info(self, routine: str, handle: int, name: str, *more: int) -> Any:
        """Return the answer to a query, as the Python type that the ABI data tells. Raises
        SYCLError.

        Args:
            routine: the function that is asked, "urDeviceGetInfo".
            more: what the function takes between the object and the query.
        """
        self.check_open(routine)
        constant = UR.constants[name]
        value = query(
            getattr(self.ur, routine),
            routine,
            self.check,
            handle,
            *more,
            constant.value,
            detail=f"({name})",
        )
        return decode(UR, constant.answer, value)

    def has(self, routine: str) -> bool:
        """Whether the adapter implements a function."""
        return self.plugin.has(routine)

    def __repr__(self) -> str:
        return f"<RuntimeAdapter {self.plugin.path}>"


_adapters: Final[list[RuntimeAdapter]] = []


@call_in_child
def _close_all() -> None:
    for adapter in _adapters:
        adapter.open = False


class URObject(NeverCopied):
    """An object of an adapter. It holds one reference and releases it in the end.

    Two objects are equal if their handles are.
    """

    _release: ClassVar[str] = ""
    _native: ClassVar[str] = ""

    def __init__(self, adapter: RuntimeAdapter, handle: int) -> None:
        self.adapter = adapter
        self.handle = handle

    def native(self) -> int:
        """Return the native handle behind it (OpenCL: cl_…). The reference stays the object's."""
        return self.adapter.obtain(self._native, self.handle)

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is type(self)
            and other.adapter is self.adapter
            and other.handle == self.handle
        )

    def __hash__(self) -> int:
        return hash(self.handle)

    def __del__(self) -> None:
        handle, adapter = getattr(self, "handle", 0), getattr(self, "adapter", None)
        self.handle = 0  # a weak reference of another thread leads here until this has returned
        if handle and adapter is not None and adapter.open:
            getattr(adapter.ur, self._release)(handle)
