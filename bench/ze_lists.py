"""An execution of a Level Zero command list, beside an enqueue of the same command-buffer of icd.

The list has 1,000 small kernels. The command-buffer is made of the same commands. It runs on a
queue of its own, without profiling. Both are enqueued by C, in one process and in turns, after the
engines have been tried.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from random import Random
from typing import Any, Final

from fairlead.icd._native import lib
from fairlead.icd.calls import call, find_driver_function, get_address, make_queue
from fairlead.icd.command_buffer.command_buffer import CommandBuffer
from fairlead.loader.ze.abi import ZE

from .measuring import Row, Target, ratio
from .work import ze_lists

_LAUNCHES: Final = 1000
_TRIES: Final = 500  # executions until an engine is chosen, at most
_SOURCE: Final = b"kernel void add(global int *out, int n) { out[get_global_id(0)] += n; }"
_FOREVER: Final = (1 << 64) - 1


class _Program:
    """A closed list on the first device of fairlead's driver, and what runs it."""

    def __init__(self) -> None:
        from fairlead.plugins import level_zero_driver

        os.environ["ZE_ENABLE_ALT_DRIVERS"] = level_zero_driver()
        import fairlead

        (device, *_) = fairlead.level_zero().select()
        self.table = device.driver.table
        driver, self.device = device.driver_handle, device.handle
        self.context = self._made("zeContextCreate", driver, desc="context")
        module = self._module()
        self.kernel = self._made(
            "zeKernelCreate", module, desc="kernel", pKernelName=ctypes.create_string_buffer(b"add")
        )
        self.queue = self._made(
            "zeCommandQueueCreate", self.context, self.device, desc="command_queue"
        )
        self.list = self._made(
            "zeCommandListCreate",
            self.context,
            self.device,
            desc="command_list",
            flags=ZE["ZE_COMMAND_LIST_FLAG_IN_ORDER"],
        )
        self._record()

    def ok(self, name: str, *arguments: Any) -> None:
        """Call a function, which has to succeed."""
        code = getattr(self.table, name)(*arguments)
        if code:
            raise SystemExit(f"{name}: {code:#x}")

    def _made(self, name: str, *arguments: Any, desc: str, **fields: Any) -> int:
        out = ctypes.c_void_p()
        row = _struct(f"{desc}_desc", **fields)
        self.ok(name, *arguments, ctypes.byref(row), ctypes.byref(out))
        return out.value or 0

    def _module(self) -> int:
        source, out = ctypes.create_string_buffer(_SOURCE, len(_SOURCE)), ctypes.c_void_p()
        native = ZE["ZE_MODULE_FORMAT_NATIVE"]
        row = _struct("module_desc", format=native, inputSize=len(_SOURCE), pInputModule=source)
        given = self.context, self.device, ctypes.byref(row), ctypes.byref(out), None
        self.ok("zeModuleCreate", *given)
        return out.value or 0

    def _record(self) -> None:
        memory = ctypes.c_void_p()
        host, device = _struct("host_mem_alloc_desc"), _struct("device_mem_alloc_desc")
        given = ctypes.byref(device), ctypes.byref(host), 256, 0, self.device, ctypes.byref(memory)
        self.ok("zeMemAllocShared", self.context, *given)
        self.ok("zeKernelSetGroupSize", self.kernel, 64, 1, 1)
        self.ok("zeKernelSetArgumentValue", self.kernel, 0, 8, ctypes.byref(memory))
        groups = ZE.get_struct("ze_group_count_t")(1, 1, 1)
        for number in range(_LAUNCHES):
            value = ctypes.c_int(number)
            self.ok("zeKernelSetArgumentValue", self.kernel, 1, 4, ctypes.byref(value))
            given = self.list, self.kernel, ctypes.byref(groups), None, 0, None
            self.ok("zeCommandListAppendLaunchKernel", *given)
        self.ok("zeCommandListClose", self.list)

    def run(self) -> None:
        """Execute the list, and wait."""
        given = self.queue, 1, (ctypes.c_void_p * 1)(self.list), None
        self.ok("zeCommandQueueExecuteCommandLists", *given)
        self.ok("zeCommandQueueSynchronize", self.queue, _FOREVER)


def _struct(name: str, **fields: Any) -> Any:
    row = ZE.get_struct(f"ze_{name}_t")()
    row.stype = ZE[f"ZE_STRUCTURE_TYPE_{name.upper()}"]
    for field, value in fields.items():
        is_data = isinstance(value, ctypes.Array)
        setattr(row, field, ctypes.addressof(value) if is_data else value)
    row.kept = fields
    return row


def _run_until_c_does(buffer: CommandBuffer, run: Callable[[], None]) -> None:
    """Run a command-buffer until C may enqueue it again."""
    for _ in range(_TRIES):
        run()
        if buffer.again is not None:
            return
    raise SystemExit("no engine may enqueue it without Python")


def _same_buffer(program: _Program) -> tuple[CommandBuffer, int]:
    """Return a command-buffer of the list's commands, and a queue that has run it."""
    from fairlead.plugins.level_zero.core import driver
    from fairlead.plugins.level_zero.lists import ZeCommandList

    made = driver.objects.list_owned(ZeCommandList.type)[program.list]
    (part,) = made.recording.list_parts()
    assert part.buffer is not None
    _run_until_c_does(part.buffer, program.run)
    buffer = CommandBuffer(part.buffer._commands)
    queue = make_queue(made.context.ur.cl, made.device.ur.cl)

    def run() -> None:
        code, event, *_ = buffer.enqueue(queue, 1, ())
        if code:
            raise SystemExit(f"the command-buffer answers {code}")
        call(queue, "clFinish")
        call(event, "clReleaseEvent")

    _run_until_c_does(buffer, run)
    return buffer, queue


def _ways(program: _Program, buffer: CommandBuffer, queue: int) -> dict[str, Callable[[Any], int]]:
    """Return what enqueues each, waits for its end, and writes how long both took."""
    from fairlead.plugins import level_zero_driver

    run, driver = ze_lists(), ctypes.CDLL(level_zero_driver())
    names = "zeCommandQueueExecuteCommandLists", "zeCommandQueueSynchronize"
    own = [_pointer(getattr(driver, name)) for name in names]
    wait, release = (
        ctypes.c_void_p(get_address(find_driver_function(queue, name)))
        for name in ("clWaitForEvents", "clReleaseEvent")
    )
    enqueue = ctypes.c_void_p(get_address(lib.fl_exported().enqueue_present))
    listed = [ctypes.c_void_p(handle) for handle in (program.queue, program.list)]
    native = [ctypes.c_void_p(handle) for handle in (get_address(buffer.native), queue)]
    return {
        "list": lambda took: run.run_list(*own, *listed, took),
        "icd": lambda took: run.run_buffer(enqueue, wait, release, *native, took),
    }


def _pointer(function: Any) -> ctypes.c_void_p:
    return ctypes.cast(function, ctypes.c_void_p)


def measure(quick: bool) -> list[Row]:
    """Measure the enqueue, and the enqueue until its end."""
    program = _Program()
    buffer, queue = _same_buffer(program)
    ways = _ways(program, buffer, queue)
    took, order, lot = (ctypes.c_double * 2)(), list(ways), Random(1)
    samples: list[dict[str, list[float]]] = [{name: [] for name in ways} for _ in took]
    for _ in range(20 if quick else 2000):
        lot.shuffle(order)
        for name in order:
            code = ways[name](took)
            if code:
                raise SystemExit(f"{name} answers {code}")
            for place, nanoseconds in enumerate(took):
                samples[place][name].append(nanoseconds / 1000)
    what, target = f"a list of {_LAUNCHES:,} kernels ÷ the command-buffer of icd", Target("≤", 1.05)
    return [
        ratio(f"{what}: enqueue", samples[0], "list", "icd", target, "µs"),
        ratio(f"{what}: until its end", samples[1], "list", "icd", target, "µs"),
    ]
