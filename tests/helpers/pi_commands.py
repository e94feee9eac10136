"""A program that appends every command of PI's command-buffers, runs each twice, and checks it.

As a script it takes the folder of the package helpers, the plugin, and the folders of libraries
that the plugin needs. It prints JSON: the code of each append ("codes"), whether its result is
right ("right"), and whether the device says that it has command-buffers ("says so").
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

sys.path.append(sys.argv[1])

from fairlead.loader.base import library
from fairlead.loader.pi.abi import PI
from fairlead.loader.ur import binding
from helpers.pi_program import COUNT, Client, build, events, first_device, make_queue, set_arguments

SIZE = 64  # of each buffer and allocation: 8 rows of 8 bytes
PATTERN = bytes(range(SIZE))


class Commands:
    """A context with two buffers and two allocations, which are filled anew for each command."""

    def __init__(self, client: Client) -> None:
        self.client = client
        _, self.device = first_device(client)
        self.context = client.make(
            "piContextCreate", None, 1, ctypes.byref(ctypes.c_void_p(self.device)), None, None, ...
        )
        self.queue = make_queue(client, self.context, self.device)
        flags = PI["PI_MEM_FLAGS_ACCESS_RW"]
        self.one, self.other = (
            client.make("piMemBufferCreate", self.context, flags, SIZE, None, ..., None)
            for _ in range(2)
        )
        self.usm, self.target = (
            client.make("piextUSMSharedAlloc", ..., self.context, self.device, None, SIZE, 0)
            for _ in range(2)
        )
        self.host = (ctypes.c_uint8 * SIZE)()

    def fill(self) -> None:
        """Buffer `one`, allocation `usm` and the host's memory hold PATTERN, the others zeros."""
        zeros = bytes(SIZE)
        for buffer, data in ((self.one, PATTERN), (self.other, zeros)):
            self.client.piEnqueueMemBufferWrite(
                self.queue, buffer, True, 0, SIZE, data, 0, None, None
            )
        ctypes.memmove(self.usm, PATTERN, SIZE)
        ctypes.memset(self.target, 0, SIZE)
        self.host[:] = PATTERN

    def read(self, buffer: int) -> bytes:
        found = ctypes.create_string_buffer(SIZE)
        self.client.piEnqueueMemBufferRead(self.queue, buffer, True, 0, SIZE, found, 0, None, None)
        return found.raw

    def run(self, name: str, *arguments: Any) -> int:
        """Append one command and, if that is possible, run it twice; the code of the append."""
        self.fill()
        client = self.client
        buffer = client.make("piextCommandBufferCreate", self.context, self.device, None, ...)
        client.piextCommandBufferRetain(buffer)
        client.piextCommandBufferRelease(buffer)
        point = ctypes.c_uint32(0xFFFF_FFFF)
        code = getattr(client.pi, name)(buffer, *arguments, 0, None, ctypes.byref(point))
        if not code:
            client.piextCommandBufferFinalize(buffer)
            first = client.make("piextEnqueueCommandBuffer", buffer, self.queue, 0, None, ...)
            client.piEventsWait(
                *events(
                    client.make(
                        "piextEnqueueCommandBuffer", buffer, self.queue, *events(first), ...
                    )
                )
            )
        client.piextCommandBufferRelease(buffer)
        return code


def rows(source: bytes, at: int, into: int) -> bytes:
    """Return zeros with a rectangle of 3 bytes and 2 rows, copied from offset `at` to offset
    `into`."""
    found = bytearray(SIZE)
    for row in range(2):
        found[into + 8 * row : into + 8 * row + 3] = source[at + 8 * row : at + 8 * row + 3]
    return bytes(found)


def sizes(*values: int) -> Any:
    return (ctypes.c_size_t * 3)(*values)


def rectangles(c: Commands) -> dict[str, tuple[str, tuple[Any, ...], Callable[[], bool]]]:
    at, into, block = sizes(2, 1, 0), sizes(4, 5, 0), sizes(3, 2, 1)
    moved = rows(PATTERN, 10, 44)
    within = bytes(new if new else old for new, old in zip(moved, PATTERN, strict=True))
    pitches = (8, 0, 8, 0)

    def read_back() -> bool:
        return bytes(c.host)[44:47] == PATTERN[10:13] and bytes(c.host)[52:55] == PATTERN[18:21]

    return {
        "copy rectangle": (
            "piextCommandBufferMemBufferCopyRect",
            (c.one, c.other, at, into, block, *pitches),
            lambda: c.read(c.other) == moved,
        ),
        "write rectangle": (
            "piextCommandBufferMemBufferWriteRect",
            (c.other, into, at, block, *pitches, c.host),
            lambda: c.read(c.other) == moved,
        ),
        "read rectangle": (
            "piextCommandBufferMemBufferReadRect",
            (c.one, at, into, block, *pitches, c.host),
            read_back,
        ),
        "copy rectangle within a buffer": (
            "piextCommandBufferMemBufferCopyRect",
            (c.one, c.one, at, into, block, *pitches),
            lambda: c.read(c.one) == within,
        ),
    }


def plain(c: Commands) -> dict[str, tuple[str, tuple[Any, ...], Callable[[], bool]]]:
    two = (ctypes.c_uint8 * 2)(7, 9)
    shifted = bytes(8) + PATTERN[4:20] + bytes(SIZE - 24)
    return {
        "memcpy": (
            "piextCommandBufferMemcpyUSM",
            (c.target, c.usm, SIZE),
            lambda: ctypes.string_at(c.target, SIZE) == PATTERN,
        ),
        "fill memory": (
            "piextCommandBufferFillUSM",
            (c.target, two, 2, SIZE),
            lambda: ctypes.string_at(c.target, SIZE) == bytes((7, 9)) * 32,
        ),
        "prefetch": (
            "piextCommandBufferPrefetchUSM",
            (c.usm, SIZE, 0),
            lambda: ctypes.string_at(c.usm, SIZE) == PATTERN,
        ),
        "advise": (
            "piextCommandBufferAdviseUSM",
            (c.usm, SIZE, PI["PI_MEM_ADVICE_RESET"]),
            lambda: ctypes.string_at(c.usm, SIZE) == PATTERN,
        ),
        "copy": (
            "piextCommandBufferMemBufferCopy",
            (c.one, c.other, 4, 8, 16),
            lambda: c.read(c.other) == shifted,
        ),
        "write": (
            "piextCommandBufferMemBufferWrite",
            (c.other, 8, 16, ctypes.byref(c.host, 4)),
            lambda: c.read(c.other) == shifted,
        ),
        "read": (
            "piextCommandBufferMemBufferRead",
            (c.one, 0, 8, ctypes.byref(c.host, 8)),
            lambda: bytes(c.host)[8:16] == PATTERN[:8],
        ),
        "fill": (
            "piextCommandBufferMemBufferFill",
            (c.other, two, 2, 8, 16),
            lambda: c.read(c.other)[8:24] == bytes((7, 9)) * 8,
        ),
    }


def kernel(c: Commands) -> bool:
    """A copy and, after it, a kernel whose arguments are changed before the command-buffer runs."""
    client = c.client
    made = client.make("piKernelCreate", build(client, c.context, c.device), b"scale", ...)
    source, target, other = (
        client.make("piextUSMSharedAlloc", ..., c.context, c.device, None, 4 * COUNT, 0)
        for _ in range(3)
    )
    (ctypes.c_int32 * COUNT).from_address(source)[:] = range(COUNT)
    buffer = client.make("piextCommandBufferCreate", c.context, c.device, None, ...)
    points = (ctypes.c_uint32 * 2)()
    client.piextCommandBufferMemcpyUSM(buffer, other, source, 4 * COUNT, 0, None, points)
    set_arguments(client, made, other, target, 3)
    size = (ctypes.c_size_t * 1)(COUNT), (ctypes.c_size_t * 1)(64)
    client.piextCommandBufferNDRangeKernel(
        buffer, made, 1, sizes(), *size, 1, points, ctypes.byref(points, 4)
    )
    set_arguments(client, made, source, source, 9)
    client.piextCommandBufferFinalize(buffer)
    made_events = [
        client.make("piextEnqueueCommandBuffer", buffer, c.queue, 0, None, ...) for _ in range(3)
    ]
    client.piEventsWait(*events(*made_events))
    return list((ctypes.c_int32 * COUNT).from_address(target)) == [4 * at for at in range(COUNT)]


def main(path: str, *folders: str) -> None:
    opened = library.open_with_siblings(path, folders)
    assert opened, path
    client = Client(binding.bind_plugin(opened).table)
    c = Commands(client)
    codes, right = {}, {"kernel": kernel(c)}
    for name, (function, arguments, is_right) in {**plain(c), **rectangles(c)}.items():
        codes[name] = c.run(function, *arguments)
        right[name] = is_right()
    extensions = client.info("piDeviceGetInfo", c.device, "PI_DEVICE_INFO_EXTENSIONS")
    says_so = b"ur_exp_command_buffer" in extensions.rstrip(b"\0").split()
    client.piTearDown(ctypes.byref(ctypes.c_bool()))
    print(json.dumps({"codes": codes, "right": right, "says so": says_so}))


if __name__ == "__main__":
    main(*sys.argv[2:])
