"""The self-test of the engine `direct`: the driver and direct calls must give equal results.

direct_trust.py runs `main` in a child process (self_tests.py). It has three parts:

1. The kernel of self_tests.py writes all that an item sees. On this engine it also writes how
   memory is aligned, and the flags of the floating point unit.
2. Graphs of random launches of further kernels change parts of one buffer, with canaries between
   the parts. They run by generic and by special functions, in one thread and in several.
3. Kernels that the engine must leave to the driver are refused.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ...loader.base.children import decode_candidate
from ...loader.base.errors import FairleadError
from .._native import ffi
from ..abi import OPENCL
from ..calls import build_program, call, create_context, get_address
from ..drivers import load
from ..errors import OpenCLError, check
from ..pocl_kernels import PoclKernel, parse
from .commands import CommandArray, CommandList
from .direct_device import get_device
from .engine import BuiltCommands, QueueKind
from .engines.direct import BuiltDirect, Found
from .engines.replay import Replay
from .group_functions import GroupFunctions, query_binary
from .self_tests import (
    Builder,
    Local,
    add_launch,
    find_difference,
    list_commands,
    make_buffer,
    make_kernel,
    run_built,
)

_OPTIONS: Final = ("-DHOST", "-DHOST -cl-denorms-are-zero")
_CPU: Final = OPENCL["CL_DEVICE_TYPE_CPU"]


def main(data: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Called in the child, for the driver whose candidate's `asdict` is `data`."""
    progress("opening the library")
    platform = load(decode_candidate(data)).platforms[0]
    progress("looking at its devices")
    cpus = [device for device in platform.devices if device.info("CL_DEVICE_TYPE") & _CPU]
    if not cpus:
        return {"difference": f"{platform.version} has no CPU"}
    device, found = cpus[0].handle, ""
    for special in False, True:  # the driver has made the special functions by then
        builder_in = _make_builder(device, special=special)
        found = found or find_difference(device, _OPTIONS, builder_in, progress)
    return {"difference": found or find_wrong_launch(device, progress)}


def _make_builder(device: int, *, special: bool) -> Callable[[int], Builder]:
    def make_in_context(context: int) -> Builder:
        known, target = get_device(context, device), QueueKind(context, device, 0)

        def builder(kernel: int) -> Callable[[CommandList], BuiltCommands]:
            found = Found(known, _find_functions([kernel], device))
            return lambda commands: _build(commands, target, found, special=special)

        return builder

    return make_in_context


def _find_functions(kernels: Sequence[int], device: int) -> GroupFunctions:
    functions = GroupFunctions(kernels, device)
    for why_not in functions.why_not.values():
        raise FairleadError(why_not)
    return functions


def _build(
    commands: CommandList, target: QueueKind, found: Found, *, special: bool
) -> BuiltCommands:
    if special:
        found.find_reasons(commands)  # opens them
    return BuiltDirect(commands, target, found)


# random launches

#: Names from 60 characters on are shortened by PoCL 6.0 and later.
_LONG_NAME: Final = "fairlead_" + "long_" * 12 + "name"

_SOURCE: Final = """
#define SEE(value) seen = seen * 31 + (ulong)(value)
typedef struct { char a; short b; float3 c; } mixed;

kernel void fairlead_values(global ulong *out, char a, ushort b, int3 c, float2 d, long4 e, mixed f,
                            global const uchar *in, constant short *table, global const half *h) {
    size_t item = get_global_id(0) - get_global_offset(0);
    ulong seen = get_global_id(0);
    SEE(a); SEE(b); SEE(c.x); SEE(c.y); SEE(c.z); SEE(as_uint(d.x)); SEE(as_uint(d.y));
    SEE(e.x); SEE(e.w); SEE(f.a); SEE(f.b); SEE(as_uint(f.c.x)); SEE(as_uint(f.c.z));
    float x = vload_half(item, h);
    SEE(in[item]); SEE(table[item]); SEE(isnan(x) ? 0 : as_uint(x)); SEE(get_group_id(0));
    out[item] = out[item] * 31 + seen;
}

/* Each item writes to all of the local memory, and then reads all of it. */
kernel void fairlead_locals(global ulong *out, local ulong *first, uint add, local uchar *second) {
    local uchar odd[37]; local ulong own[16]; local float3 wide[16];
    size_t item = get_global_id(0), k = get_local_id(0);
    ulong seen = add;
    first[k] = item * 3 + add; second[k * 2] = item; second[k * 2 + 1] = add;
    odd[k] = item + add; odd[k + 16] = item * 5; odd[min(k + 32, (size_t)36)] = 7;
    own[k] = item * 7; wide[k] = (float3)(item, add, k);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = 0; i < 16; i++) {
        SEE(first[i]); SEE(second[i * 2]); SEE(second[i * 2 + 1]); SEE(odd[i]); SEE(odd[i + 16]);
        SEE(own[i]); SEE(as_uint(wide[i].x)); SEE(as_uint(wide[i].y)); SEE(as_uint(wide[i].z));
    }
    SEE(odd[32]); SEE(odd[36]);
    out[item] = out[item] * 31 + seen;
}

__attribute__((reqd_work_group_size(4, 2, 1)))
kernel void LONG_NAME(uint add, global ulong *out) {
    size_t item = get_global_id(1) * get_global_size(0) + get_global_id(0);
    out[item] = out[item] * 31 + item + add + get_num_groups(1) + get_local_size(1);
}
""".replace("LONG_NAME", _LONG_NAME)
#: The local variables of fairlead_locals, in bytes.
_AUTOMATIC: Final = (37, 16 * 8, 16 * 16)

_PARTS, _ROOM, _USED = 8, 8192, 4096  # parts of the buffer; bytes from one to the next, and of each
_LAUNCHES: Final = 400
_TIMES: Final = 12  # the first passes are measured, and run in one thread
_SEED: Final = 20_261_128


def find_wrong_launch(device: int, progress: Callable[[str], None]) -> str:
    """Return what is wrong with direct launches of further kernels, or "".

    Args:
        device: a handle.
        progress: called with the next step.

    Raises:
        FairleadError: the driver, or what the engine needs of it, is not as it should be.
    """
    context = create_context(device)
    target, known = QueueKind(context, device, 0), get_device(context, device)
    progress("compiling further kernels")
    program = build_program(context, device, _SOURCE.encode())
    kernels = [make_kernel(program, name) for name in (*_NAMES, _LONG_NAME)]
    wrong = _find_wrong_description(parse(query_binary(program)))
    if wrong:
        return wrong
    buffer, generator = make_buffer(context, _PARTS * _ROOM), random.Random(_SEED)
    parts = [_make_part(buffer, number * _ROOM) for number in range(_PARTS)]
    before = generator.randbytes(_PARTS * _ROOM)
    found, plain = Found(known, _find_functions(kernels, device)), known.native.thread_limits
    threads = {"threads": max(2, plain.threads), "least": 0, "percent": 1 << 30}
    alone = {"threads": 1, "least": 0, "percent": 0}
    for special, limits in (False, alone), (True, alone), (True, threads):
        commands = list_commands(_choose_launches(generator, kernels, parts), target)
        progress(f"running random launches, with {limits['threads']} threads")
        theirs = run_built(Replay().build(commands, target), target, buffer, before, _TIMES)
        known.native.thread_limits = limits
        built = _build(commands, target, found, special=special)
        if run_built(built, target, buffer, before, _TIMES) != theirs:
            return f"results of random launches differ, with {limits['threads']} threads"
    return _find_wrong_acceptance(context, device, progress)


_NAMES: Final = ("fairlead_values", "fairlead_locals")


def _find_wrong_description(kernels: dict[str, PoclKernel]) -> str:
    found = {name: kernels.get(name) for name in (*_NAMES, _LONG_NAME)}
    values, locals_, required = found.values()
    if values is None or locals_ is None or required is None:
        return f"its binary has the kernels {', '.join(kernels)}"
    if values.spaces != ("memory", *["value"] * 6, *["memory"] * 3):
        return f"the arguments of {values.name} are {values.spaces}"
    if locals_.spaces != ("memory", "local", "value", "local"):
        return f"the arguments of {locals_.name} are {locals_.spaces}"
    if locals_.automatic != _AUTOMATIC:
        return f"the local variables of {locals_.name} have {locals_.automatic} bytes"
    if required.required != (4, 2, 1) or any(values.required):
        return f"the required sizes are {required.required} and {values.required}"
    return ""


def _make_part(buffer: int, origin: int) -> int:
    """Return a sub-buffer (a handle)."""
    region, code = ffi.new("size_t[2]", [origin, _USED]), ffi.new("int32_t *")
    kind = OPENCL["CL_BUFFER_CREATE_TYPE_REGION"]
    part = call(buffer, "clCreateSubBuffer", 0, kind, get_address(region), get_address(code))
    check(code[0], "clCreateSubBuffer")
    return part


def _choose_launches(
    generator: random.Random, kernels: Sequence[int], parts: Sequence[int]
) -> CommandArray:
    """Return launches, each of which changes one part and comes after the ones that use it."""
    commands, (values, locals_, _) = CommandArray(), kernels
    last = dict[int, list[int]]()  # of each part: the commands since its last change
    for _ in range(_LAUNCHES):
        out, *read = generator.sample(parts, 4)
        add = generator.randbytes(4)
        kind = generator.choice(kernels)
        groups = generator.randint(1, 12)
        if kind == values:
            arguments = [out, *_choose_values(generator), *read]
            offset = generator.choice((0, 0, generator.randint(1, 99)))
            shape = (offset, 0, 0), (8 * groups, 1, 1), (8, 1, 1)
        elif kind == locals_:
            local, read = Local(generator.randint(32, 99)), []
            arguments = [out, Local(128), add, local]
            shape = (0, 0, 0), (16 * groups, 1, 1), (16, 1, 1)
        else:
            arguments, read = [add, out], []
            shape = (0, 0, 0), (4 * groups, 2 * generator.randint(1, 4), 1), (4, 2, 1)
        before = {*last.get(out, ()), *(one for part in read for one in last.get(part, ())[:1])}
        number = add_launch(commands, sorted(before), kind, arguments, shape)
        last[out] = [number]
        for part in read:
            last.setdefault(part, []).append(number)
    return commands


def _choose_values(generator: random.Random) -> Iterator[bytes]:
    """Yield the values of fairlead_values. Memory of three numbers has room for four."""
    for size in (1, 2, 16):
        yield generator.randbytes(size)
    yield struct.pack("2f", generator.random(), -generator.random())
    for size in (32, 32):
        yield generator.randbytes(size)


# what is refused

_REFUSED: Final = {
    "printf": b"""kernel void fairlead_prints(global int *a) {
        if (a[0] == -1) printf("%d", a[0]);
    }""",
    "program-scope variables": b"""global int fairlead_count = 1;
    kernel void fairlead_counts(global int *a) { a[0] = fairlead_count++; }""",
    "images": b"""kernel void fairlead_looks(read_only image2d_t from, sampler_t how,
                                               global int *a) {
        a[0] = read_imagei(from, how, (int2)(0, 0)).x;
    }""",
}


def _find_wrong_acceptance(context: int, device: int, progress: Callable[[str], None]) -> str:
    """Return which kernel would be called that must not be, or ""."""
    for what, source in _REFUSED.items():
        progress(f"compiling a kernel with {what}")
        try:
            program = build_program(context, device, source, b"-cl-std=CL3.0")
        except OpenCLError:  # the driver has none of these
            continue
        for kernel in parse(query_binary(program)).values():
            if not kernel.why_not and "other" not in kernel.spaces:
                return f"a kernel with {what} would be called"
    return ""
