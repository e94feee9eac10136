"""Random calls of the Level Zero driver's C ABI: the program that test_fuzz.py runs.

    python -m helpers.ze_fuzz LIBRARY PLACE TRAIL SEED CALLS

PLACE is the number of the driver handle. Every call is written to TRAIL before it is made, so after
a crash the last line says what crashed. The calls follow from SEED.

A handle is alive, destroyed, of another type, no handle at all, or NULL. A chain of structs is
empty, of an unexpected struct, or a ring. Numbers are small, huge or undefined flags. Pointers lead
to memory of the size that the call names, because anything else is undefined for a C interface.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from fairlead.loader.base.abi import Function, Parameter
from fairlead.loader.ze.abi import ZE
from fairlead.plugins.level_zero import driver
from helpers.ze_bench import SOURCE, ZeBench
from helpers.ze_calls import ZeCalls

_ROOM: Final = 1 << 20  # bytes behind every pointer
_MOST: Final = 6  # objects of a type that are alive
_SMALL: Final = (0, 1, 2, 3, 4, 8, 16, 64)
_HUGE: Final = (1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 8)
_NAMES: Final = (b"add", b"mul", b"shape", b"", b"none", b"\xff\xfe")
_HANG: Final = 60.0  # seconds of one call
_STYPES: Final = tuple(ZE.groups["ze_structure_type_t"])

#: They wait for ever by their meaning, or take addresses of functions that would be called.
_LEFT_OUT: Final = frozenset(
    {
        "zeDeviceSynchronize",
        "zeModuleDynamicLink",
        "zeCommandListAppendHostFunction",
        "zeGraphSetDestructionCallbackExt",
        "zeGraphDumpContentsExt",
    }
)
#: With another value than 0 calls wait for events that nobody signals.
_WAITING: Final = frozenset({"mode", "freePolicy"})
#: Numbers that the driver has to believe, or by which a kernel would write elsewhere.
_BELIEVED: Final = frozenset(
    (
        *("size", "pattern_size", "argSize", "maxSize", "inputSize"),
        *("offsetX", "offsetY", "offsetZ", "groupCountX", "groupCountY", "groupCountZ"),
        *("originX", "originY", "originZ", "width", "height", "depth", "dstPitch", "srcPitch"),
        *("dstSlicePitch", "srcSlicePitch", "numRanges", "count", "timeout"),
    )
)


class Fuzz:
    """A sequence of calls, and what it has made.

    Args:
        bench: a context of the driver.
        trail: a file that calls are written to.
        seed: what the sequence follows from.
    """

    def __init__(self, bench: ZeBench, trail: int, seed: int) -> None:
        self.bench, self.trail, self.random = bench, trail, random.Random(seed)
        self.codes: Counter[tuple[str, str]] = Counter()
        self.alive: dict[str, list[int]] = {}
        self.ended: dict[str, list[int]] = {}
        self.memory = bench.ints(count=_ROOM // 4)
        self.scratch = ctypes.create_string_buffer(_ROOM)
        self.kept: list[Any] = []  # what calls were given
        self.read_later: list[Any] = []  # what appended commands may read when they run
        self.appends = False  # whether the present call appends a command
        self.identifiers = [1]  # of mutable commands
        self.mine = {
            "ze_driver_handle_t": [bench.driver],
            "ze_device_handle_t": [bench.device],
            "ze_context_handle_t": [bench.context],
            "ze_module_handle_t": [bench.module()],
        }
        there = sorted(driver.declared - _LEFT_OUT)
        makers = [name for name in there if "Create" in name and "Module" not in name]
        self.names = [*bench.ze.names, *4 * there, *8 * makers]
        self.names = [name for name in self.names if name not in _LEFT_OUT]

    def run(self, calls: int) -> None:
        """Make calls.

        Raises AssertionError for a code that no function has to answer.
        """
        for _ in range(calls):
            if self.random.random() < 0.05:
                self._legal()
            function = ZE.functions[self.random.choice(self.names)]
            del self.kept[:-1000]
            self.appends = "Append" in function.name
            code = self.call(function, [self.argument(function, p) for p in function.parameters])
            assert code != "UNKNOWN", f"{function.name} failed for a reason that it does not tell"

    def _legal(self) -> None:
        """Make objects that fit together, so that random calls with them may succeed."""
        bench, out = self.bench, self.memory.pointer
        kernel = bench.kernel(self.random.choice(("add", "mul")), out, ctypes.c_int(3))
        changed, made = bench.list(mutable=True), bench.list(in_order=self.random.random() < 0.5)
        number = bench.next_id(changed)
        bench.launch(changed, kernel, 2)
        if self.random.random() < 0.7:
            bench.ze.ok("zeCommandListClose", changed)
            bench.run(changed, wait=False)
        events = bench.events(2, flags=5)
        self.identifiers = [*self.identifiers[-_MOST:], number]
        self._add("ze_kernel_handle_t", kernel)
        self._add("ze_command_list_handle_t", changed, made, bench.immediate())
        self._add("ze_command_queue_handle_t", bench.new_queue())
        self._add("ze_event_handle_t", *events)

    def _add(self, kind: str, *handles: int) -> None:
        self.alive.setdefault(kind, []).extend(handles)

    def call(self, function: Function, arguments: list[Any]) -> str:
        """Make a call, and remember what it has made and ended. Returns the name of its code."""
        if function.error_channel != "return":
            return "SUCCESS"
        os.write(self.trail, f"{function.name}({', '.join(map(repr, arguments))})\n".encode())
        faulthandler.dump_traceback_later(_HANG, exit=True)
        code = self.bench.ze.code(function.name, *arguments)
        faulthandler.cancel_dump_traceback_later()
        self.codes[function.name, code] += 1
        if code == "SUCCESS":
            for p, value in zip(function.parameters, arguments, strict=True):
                self._note(function, p, value)
        return code

    def _note(self, function: Function, p: Parameter, value: Any) -> None:
        if p.name == "pptr" and function.name.startswith("zeMemAlloc"):
            self.alive.setdefault("memory", []).append(ctypes.c_uint64.from_address(value).value)
        if p.name == "ptr" and function.name.startswith("zeMemFree"):
            self.alive["memory"].remove(value)
        if ZE.resolve(p.type) != "handle":
            return
        alive = self.alive.setdefault(p.type, [])
        if "release" in p.words and value in alive:
            alive.remove(value)
            self.ended.setdefault(p.type, []).append(value)
        if p.stars == 1 and "out" in p.words and not p.length and "Get" not in function.name:
            made = ctypes.c_void_p.from_address(value).value
            if made and made not in alive:  # a capture ends in the graph that it began in
                alive.append(made)

    def end(self) -> None:
        """Signal all events, destroy everything, and see that the driver still works."""
        for event in self.alive.get("ze_event_handle_t", ()):
            self.bench.ze.code("zeEventHostSignal", event)
        for function in (ZE.functions[name] for name in self.bench.ze.names):
            last = function.parameters[-1] if function.parameters else None
            if last is None or "release" not in last.words or len(function.parameters) > 1:
                continue
            for handle in list(self.alive.get(last.type, ())):
                assert self.call(function, [handle]) == "SUCCESS", function.name
        out = self.bench.ints(count=4)
        queue, made = self.bench.new_queue(), self.bench.list()
        self.bench.launch(made, self.bench.kernel("add", out.pointer, ctypes.c_int(3)), 4)
        self.bench.ze.ok("zeCommandListClose", made)
        self.bench.run(made, queue=queue)
        assert out.all == [3] * 4

    # arguments

    def argument(self, function: Function, p: Parameter) -> Any:
        """Return what a parameter gets: a number or an address."""
        base = "callback" if p.type == "callback" else ZE.resolve(p.type)
        if base == "handle" and p.stars == 0:
            return self.handle(p.type, is_end="release" in p.words)
        if p.name == "ptr" and function.name.startswith("zeMemFree"):
            return self.handle("memory", is_end=True)
        if p.name == "pArgValue":
            return self.value()
        if self.random.random() < 0.04 and p.stars:
            return None
        if base == "handle" and "out" not in p.words:
            return self.array(p.type)
        if base == "handle":
            return self.room(8 * 8)
        if base == "struct":
            return self.struct(p.type) if p.stars else ZE.get_struct(p.type)()
        if base == "char" and p.const and p.stars == 1:
            return ctypes.c_char_p(self.random.choice(_NAMES))
        if p.name == "pNext":
            return self.stray()
        if base == "void" and p.stars == 1:
            return self.memory.address + 4 * self.random.randrange(1024)
        if p.stars and not p.const and ("Append" in function.name or "Binary" in p.name):
            return self.memory.address  # it is written to later, or whatever the size says
        if p.stars:
            room = self.room(_ROOM // 16)
            if p.name == "pString":  # where the text is to be written
                ctypes.c_uint64.from_address(room).value = self.room(4096)
            return room
        if any(p.name == other.length for other in function.parameters):
            return self.random.choice((0, 1, 2, 3, 1 << 31))
        if p.name == "size" and function.name.startswith("zeMemAlloc"):
            return self.random.choice((*_SMALL, 4096, 1 << 62, (1 << 64) - 8))
        return self.number(p.name, p.type)

    def handle(self, kind: str, is_end: bool = False) -> int:
        """Return a handle: alive most of the time, and not one that all calls need, if it ends."""
        chance = self.random.random()
        mine = () if is_end else self.mine.get(kind, ())
        alive = [*4 * [*mine], *self.alive.get(kind, ())[-_MOST:]]
        others = [one for handles in self.alive.values() for one in handles]
        ended = self.ended.get(kind, ())
        if chance < 0.92 and alive:
            return self.random.choice(alive)
        if chance < 0.95 and ended:
            return self.random.choice(ended)
        if chance < 0.97 and others:
            return self.random.choice(others)
        return self.random.choice([0, 0, 0, 8, 0xDEAD0, ctypes.addressof(self.scratch)])

    def array(self, kind: str) -> int:
        """Return the address of handles: more than any call that is made asks for."""
        return self.keep((ctypes.c_void_p * 8)(*(self.handle(kind) for _ in range(8))))

    def keep(self, data: Any) -> int:
        """Keep something as long as the driver may read it. Returns its address.

        Group counts in memory are read when their launch runs, which may be at the end.
        """
        (self.read_later if self.appends else self.kept).append(data)
        return ctypes.addressof(data)

    def room(self, size: int) -> int:
        """Return the address of memory that begins with a small number."""
        return self.keep((ctypes.c_uint64 * max(size // 8, 1))(self.random.randrange(4)))

    def value(self) -> int:
        """Return the address of an argument's value, which may be an address."""
        return self.keep((ctypes.c_uint64 * 64)(self.memory.address))

    def text(self) -> int:
        """Return the address of a text."""
        return self.keep(ctypes.create_string_buffer(self.random.choice(_NAMES)))

    def number(self, name: str, kind: str) -> int:
        """Return a number of a type."""
        values = tuple(ZE.groups.get(kind, ()))
        if name in _WAITING:
            return 0
        if values and self.random.random() < 0.9:
            return self.random.choice((0, *values))
        if name == "commandId" and self.random.random() < 0.9:
            return self.random.choice(self.identifiers)
        if name.startswith("groupCount"):
            return self.random.randrange(4)
        if values or (name not in _BELIEVED and self.random.random() < 0.05):
            return self.random.choice(_HUGE)
        return self.random.choice(_SMALL)

    def struct(self, kind: str) -> int:
        """Return the address of a struct with random fields."""
        row = ZE.get_struct(kind)()
        for field in ZE.structs[kind].fields:
            for name, value in self.field(kind, field):
                setattr(row, name, value)
        room = ctypes.create_string_buffer(4096)  # a longer struct may be looked for there
        ctypes.memmove(room, ctypes.addressof(row), ctypes.sizeof(row))
        address = self.keep(room)
        if hasattr(row, "pNext"):
            chance, at = self.random.random(), type(row).pNext.offset
            following = address if chance < 0.1 else self.stray() if chance < 0.25 else 0
            ctypes.c_uint64.from_address(address + at).value = following
        return address

    def stray(self) -> int:
        """Return the address of a struct of any type, of zeros but for an address in it."""
        data = (ctypes.c_uint64 * 512)(self.random.choice(_STYPES))
        return self.keep(data)

    def field(self, kind: str, field: Parameter) -> Iterator[tuple[str, Any]]:
        """Yield the value of a field, unless it stays zero."""
        base = ZE.resolve(field.type)
        if field.name == "stype" and self.random.random() < 0.95:
            name = kind.removeprefix("ze_").removesuffix("_t").upper()
            yield (
                "stype",
                ZE.constants[key].value
                if (key := f"ZE_STRUCTURE_TYPE_{name}") in (ZE.constants)
                else 0,
            )
        elif field.length or field.name == "pNext":
            return
        elif kind == "ze_module_desc_t" and field.name in ("inputSize", "pInputModule"):
            size = self.random.choice((len(SOURCE), 0, 7))
            yield (
                field.name,
                size
                if field.name == "inputSize"
                else self.keep(ctypes.create_string_buffer(SOURCE)),
            )
        elif base == "char" and field.stars:
            yield field.name, self.text()
        elif field.name == "pArgValue":
            yield field.name, self.value()
        elif base == "struct" and field.stars:
            yield field.name, self.struct(field.type)
        elif field.stars:
            yield field.name, 0 if self.random.random() < 0.5 else self.room(4096)
        elif base == "handle":
            yield field.name, self.handle(field.type)
        elif base not in ("struct", "union", "callback"):
            width = 8 * ctypes.sizeof(ZE.make_ctype(field.type))
            yield field.name, self.number(field.name, field.type) & ((1 << width) - 1)


def main(library: str, place: int, trail: str, seed: int, calls: int) -> None:
    """Open the driver, and make calls."""
    faulthandler.enable()
    ze = ZeCalls(library)
    ze.ok("zeInit", 0)
    descriptor = os.open(trail, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    fuzz = Fuzz(ZeBench(ze, ze.listed("zeDriverGet")[place]), descriptor, seed)
    fuzz.run(calls)
    fuzz.end()
    refused = sum(count for (_, code), count in fuzz.codes.items() if code != "SUCCESS")
    kinds = {name for name, code in fuzz.codes if code == "SUCCESS"}
    print(f"{calls} calls, {refused} refused; {len(kinds)} entry points succeeded", flush=True)
    if "--codes" in sys.argv:
        for (name, code), count in sorted(fuzz.codes.items()):
            print(f"{count:7} {name} {code}")
    sys.stdout.flush()
    os._exit(0)  # lists may wait for events that nobody signals


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
