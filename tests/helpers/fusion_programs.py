"""Random programs of kernels, copies and fills, which run by calls, as captured, and fused.

A program uses buffers that it holds, views of them that overlap, and buffers that only the graph
holds. Some kernels use their own items' elements, others their neighbours', or any. No launch
races: where other items' elements are read, no item writes them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyopencl as cl

from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.executable import Executable

#: Arguments and text of kernels on elements of type T. The arguments: `r` is read, `w` written, `m`
#: both, each at the item's place; `R` is read anywhere, `W` is written elsewhere; `n` is how many
#: elements there are, `a` a value, `k` a small number, `l` local memory. Then the range.
KERNELS: Final[dict[str, tuple[str, str, str]]] = {
    "sum": ("rrw", "z[i] = x[i] + y[i];", "items"),
    "product": ("rrw", "z[i] = x[i] * y[i] - x[i];", "items"),
    "scaled": ("ma", "x[i] *= a;", "items"),
    "less": ("rma", "y[i] -= x[i] - a;", "items"),
    "both": ("rww", "y[i] = x[i] + 1; z[i] = y[i] - 2;", "items"),
    "swapped": ("mm", "T t = x[i]; x[i] = y[i]; y[i] = t;", "items"),
    "some": ("rw", "if (x[i] > 1) y[i] = x[i];", "items"),
    "guarded": ("rwn", "if ((int)i >= n) return; y[i] = x[i] + 3;", "more"),
    "doubled": ("rw", "y[2 * i] = x[2 * i]; y[2 * i + 1] = x[2 * i + 1] + 1;", "half"),
    "evens": ("rw", "y[2 * i] = x[2 * i] - 1;", "half"),
    "vectors": ("rw", "((global T4 *)y)[i] = ((global const T4 *)x)[i] + (T4)(1);", "quarter"),
    "moved": ("Rwk", "y[i + k] = x[i];", "items"),
    "next": ("Rwn", "y[i] = x[(int)i + 1 < n ? i + 1 : 0] + 1;", "items"),
    "clamped": ("Rwn", "y[i] = x[min((int)i + 1, n - 1)];", "items"),
    "first": ("Rrw", "z[i] = x[0] + y[i];", "items"),
    "halves": ("Rw", "y[i] = x[i / 2];", "items"),
    "turned": ("RWn", "y[n - 1 - i] = x[i];", "items"),
    "narrow": ("Rw", "uchar at = i; y[i] = x[at];", "items"),
    "ids": ("w", "x[i] = get_local_id(0) + 7 * get_group_id(0);", "groups"),
    "through": ("mk", "global T *t = (global T *)((global uchar *)x + k * (long)sizeof(T));"
                " t[i] = t[i] + 2;", "items"),
    "flat": ("rwn", "size_t at = get_global_id(1) * get_global_size(0) + i; y[at] = x[at];",
             "grid"),
    "turned_grid": ("rw", "size_t at = i * get_global_size(1) + get_global_id(1); y[at] = x[at];",
                    "grid"),
    "moved_grid": ("Rwk", "size_t at = get_global_id(1) * get_global_size(0) + i;"
                   " y[at + k] = x[at];", "grid"),
    "above": ("Rw", "size_t n = get_global_size(0), at = get_global_id(1) * n + i;"
              " y[at] = x[get_global_id(1) > 0 ? at - n : at] + 1;", "grid"),
    "rows": ("rw", "int at = get_global_id(1) * 9 + i; y[at] = x[at] + 1;", "half_grid"),
    "cube": ("m", "int n = get_global_size(0), k = get_global_size(1);"
             " x[(get_global_id(2) * k + get_global_id(1)) * n + i] += 1;", "cube"),
    "turned_cube": ("m", "int n = get_global_size(0), k = get_global_size(2);"
                    " x[(get_global_id(1) * k + get_global_id(2)) * n + i] += 3;", "cube"),
    "column": ("rw", "y[get_global_id(1)] = x[get_global_id(1)] + get_global_id(0);", "column"),
    "helped": ("rw", "y[i] = helper(x[i]);", "items"),
    "sums": ("rrwab", "z[i] = a * (T)x[i] + b * (T)y[i];", "items"),
    "hidden": ("rrwab", "{ T a = 3; z[i] = a * (T)x[i] + b * (T)y[i]; }", "items"),
    "beside": ("rrwa", "z[i] = a * (T)x[i] - x[i] * y[i];", "items"),
    "strides": ("rwn", "for (int j = i; j < n; j += get_global_size(0)) y[j] = x[j] - 1;", "few"),
    "in_strides": ("man", "for (int j = i; j < n; j += get_global_size(0)) x[j] += a;", "few"),
    "carried": ("rwn", "T last = 0; for (int j = i; j < n; j += get_global_size(0))"
                " { y[j] = x[j] + last; last = x[j]; }", "few"),
    "running": ("Wn", "for (int j = i; j < n; j += get_global_size(0))"
                " if (j > 0) x[j] += x[j - 1];", "one"),
    "early": ("mn", "if (get_local_id(0) > 1) return;"
              " for (int j = i; j < n; j += get_global_size(0)) x[j] += 1;", "groups"),
    "later": ("Wn", "for (int j = i; j < n; j += get_global_size(0)) x[j] += 1;"
              " if (i == 0) x[0] = 9;", "one"),
    "in_groups": ("Rwl", "l[get_local_id(0)] = x[i]; barrier(CLK_LOCAL_MEM_FENCE);"
                  " y[i] = l[3 - get_local_id(0)];", "groups"),
    "back": ("RWl", "size_t k = get_local_id(0); l[k] = x[i]; barrier(CLK_LOCAL_MEM_FENCE);"
             " y[get_global_size(0) - 1 - i] = l[3 - k];", "groups"),
    "behind": ("Rwl", "size_t k = get_local_id(0); global const T *next = x + 1;"
               " l[k] = i + 1 < get_global_size(0) ? next[i] : 0; barrier(CLK_LOCAL_MEM_FENCE);"
               " y[i] = l[3 - k];", "groups"),
    "totals": ("RWl", "size_t k = get_local_id(0); l[k] = x[i]; barrier(CLK_LOCAL_MEM_FENCE);"
               " if (k == 0) y[get_group_id(0)] = l[0] + l[1] + l[2] + l[3];", "groups"),
}  # fmt: skip
_LETTERS: Final = "xyz"
_TYPES: Final = {
    "r": "global const T *", "R": "global const T *", "w": "global T *", "W": "global T *",
    "m": "global T *", "n": "int ", "k": "int ", "a": "T ", "b": "T ", "l": "local T *",
}  # fmt: skip
#: Types of elements.
KINDS: Final = {"float": np.float32, "double": np.float64, "int": np.int32, "uchar": np.uint8}
#: Elements of a buffer that launches may use.
SIZES: Final = (64, 128, 200, 320, 1024)
#: Elements behind them, so that views may begin later, and places may move in those.
_LATER: Final = 128
_SPARE: Final = _LATER + 32
_REPLAYS: Final = 3


def write_source(kind: str, *, helper: str = "x * 3") -> str:
    """Return the source of all kernels."""
    texts = [f"#define T {kind}", f"#define T4 {kind}4", f"T helper(T x) {{ return {helper}; }}"]
    for name, (roles, text, _) in KERNELS.items():
        letters = iter(_LETTERS)
        given = [_TYPES[role] + (role if role in "nkabl" else next(letters)) for role in roles]
        start = "size_t i = get_global_id(0);"
        texts.append(f"kernel void {name}({', '.join(given)}) {{ {start} {text} }}")
    return "\n".join(texts)


class Kernels:
    """The kernels of a context: for each type two programs, whose helpers are different."""

    def __init__(self, context: cl.Context) -> None:
        self._context, self._built = context, dict[str, list[dict[str, Any]]]()
        self._programs: list[cl.Program] = []

    def build(self, kind: str) -> list[dict[str, Any]]:
        if kind not in self._built:
            sources = (write_source(kind), write_source(kind, helper="x + 7"))
            programs = [cl.Program(self._context, source).build() for source in sources]
            self._programs += programs  # Intel's driver tells no options of others
            found = [{one.function_name: one for one in each.all_kernels()} for each in programs]
            self._built[kind] = found
        return self._built[kind]


class Memory:
    """The buffers of one run of a program."""

    def __init__(self, queue: cl.CommandQueue, contents: list[np.ndarray[Any, Any]]) -> None:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self._queue, self._contents = queue, contents
        self.whole = [cl.Buffer(queue.context, flags, hostbuf=one) for one in contents]

    def renew(self, count: int, turn: int) -> None:
        """Write other contents to the first buffers."""
        for buffer, one in zip(self.whole[:count], self._contents, strict=False):
            cl.enqueue_copy(self._queue, buffer, np.roll(one, 13 * turn))

    def read(self, count: int) -> list[bytes]:
        """Return the bytes of the first buffers. All NaNs have the same: compilers choose them."""
        found = [np.empty_like(one) for one in self._contents[:count]]
        for buffer, to in zip(self.whole, found, strict=False):
            cl.enqueue_copy(self._queue, to, buffer)
            to[to != to] = np.nan if to.dtype.kind in "fc" else 0
        return [one.tobytes() for one in found]


class RandomProgram:
    """A random program.

    Args:
        queue: where it runs.
        kernels: of its context.
        seed: of its choices.
        likes: kernels that are launched more often.

    Attributes:
        steps: a kernel or a transfer, arguments, a range and a size of groups.
    """

    def __init__(
        self, queue: cl.CommandQueue, kernels: Kernels, seed: int, likes: Sequence[str] = ()
    ) -> None:
        made = self._made = random.Random(seed)
        self.queue, self._likes = queue, likes
        self.kind = made.choice(list(KINDS))
        self._type, self._size = np.dtype(KINDS[self.kind]), made.choice(SIZES)
        self._kernels = kernels.build(self.kind)
        numbers = np.random.default_rng(seed)
        self._held, self._own = made.randint(2, 4), made.randint(0, 3)
        count = 4 * (self._size + _SPARE)  # a wrong proof harms nobody else
        self._contents = [self._fill(numbers, count) for _ in range(self._held + self._own)]
        #: Views: a buffer, and where it begins. The first ones are whole buffers.
        step = max(1, 128 // self._type.itemsize)
        self._views = [(number, 0) for number in range(self._held + self._own)]
        for _ in range(made.randint(0, 2)):
            at = step * made.randint(0, _LATER // step)
            self._views.append((made.randrange(self._held), at))
        self.steps = [self._make_step() for _ in range(made.randint(2, 9))]

    def _fill(self, numbers: Any, count: int) -> np.ndarray[Any, Any]:
        if self._type.kind != "f":
            return numbers.integers(0, 100, count).astype(self._type)
        found = numbers.random(count) + 0.5
        found[5::97] = np.inf
        found[7::89] *= 1e-40 if self.kind == "float" else 1e-310
        found[11::83] = np.nan
        return found.astype(self._type)

    def _make_step(self) -> tuple[str, list[Any], tuple[int, ...], int]:
        made = self._made
        name = made.choice([*KERNELS, *list(KERNELS)[:8], "copy", "fill", "copy", "fill"])
        if self._likes and made.random() < 0.5:
            name = made.choice(self._likes)
        if name in ("copy", "fill"):
            return self._make_transfer(name)
        roles, _, range_ = KERNELS[name]
        while True:
            views = [made.randrange(len(self._views)) for role in roles if role in "rRwWm"]
            if not self._races(roles, views):
                break
        chosen = iter(views)
        given = [next(chosen) if role in "rRwWm" else self._choose(role) for role in roles]
        size = self._size
        ranges, group = {
            "items": ((size,), made.choice([0, 0, 8])),
            "more": ((size + made.choice([0, 8, 56]),), 8),
            "half": ((size // 2,), 0),
            "quarter": ((size // 4,), 0),
            "grid": ((8, size // 8), 0),
            "half_grid": ((8, size // 16), 0),
            "cube": ((4, 2, size // 8), 0),
            "column": ((1, size), 0),
            "few": ((made.choice([8, 32, 64]),), 8),
            "one": ((1,), 0),
            "groups": ((size,), 4),
        }[range_]
        return f"{made.choice([0, 0, 0, 1])}{name}", given, ranges, group

    def _choose(self, role: str) -> Any:
        made = self._made
        if role in "ab":
            floats = [0.75, 1.25, 1.0, -1.0]
            return self._type.type(made.choice(floats if self._type.kind == "f" else [3]))
        if role == "l":
            return cl.LocalMemory(4 * self._type.itemsize)
        return np.int32(self._size if role == "n" else made.choice([0, 1, 32]))

    def _races(self, roles: str, views: list[int]) -> bool:
        """Whether items of one launch use what others write, or all write."""
        memory = [role for role in roles if role in "rRwWm"]
        for place, role in enumerate(memory):
            if role in "rR":
                continue
            for other, one in enumerate(views):
                if other == place or self._views[one][0] != self._views[views[place]][0]:
                    continue
                is_own = {role, memory[other]} <= set("rwm") and memory[other] == "r"
                if not is_own or one != views[place] or "R" in memory or "k" in roles:
                    return True
        return False

    def _make_transfer(self, name: str) -> tuple[str, list[Any], tuple[int, ...], int]:
        made, size, width = self._made, self._size, self._type.itemsize
        part = made.choice([size, size, size // 2]) * width
        at = made.choice([0, 0, 32 * width])
        if name == "copy":
            one, other = made.sample(range(len(self._contents)), 2)
            return name, [one, other, at], (part,), 0
        count = made.choice([1, 1, 2])
        pattern = np.array([made.randrange(3) for _ in range(count)], self._type)
        return name, [made.randrange(len(self._contents)), pattern, at], (part,), 0

    def make_memory(self) -> Memory:
        """Return new buffers with the first contents. The graph's own ones are the last."""
        return Memory(self.queue, self._contents)

    def run(self, memory: Memory) -> None:
        """Enqueue it."""
        width = self._type.itemsize
        views = [
            memory.whole[number].get_sub_region(at * width, self._size * width)
            if place >= len(self._contents)
            else memory.whole[number]
            for place, (number, at) in enumerate(self._views)
        ]
        for name, given, range_, group in self.steps:
            if name == "copy":
                one, other, at = (*(memory.whole[n] for n in given[:2]), given[2])
                cl.enqueue_copy(
                    self.queue, other, one, byte_count=range_[0], src_offset=at, dst_offset=at
                )
            elif name == "fill":
                buffer = memory.whole[given[0]]
                cl.enqueue_fill_buffer(self.queue, buffer, given[1], given[2], range_[0])
            else:
                kernel = self._kernels[int(name[0])][name[1:]]
                arguments = [views[one] if type(one) is int else one for one in given]
                kernel(self.queue, range_, (group,) if group else None, *arguments)

    def check(self, ways: Sequence[Any] = (False, "wait")) -> list[str]:
        """Compare calls with replays, with other contents in each. Every plan has run then.

        Returns the fused kernels' sources.

        Args:
            ways: what `finalize(fuse=)` gets.

        Raises:
            AssertionError: they write different bits.
        """
        called, loops = self.make_memory(), list[tuple[Memory, Any]]()
        for fuse in ways:
            memory = self.make_memory()
            with capture(self.queue) as graph:
                self.run(memory)
            del memory.whole[self._held :]  # only the graph has them
            loops.append((memory, graph.finalize(fuse=fuse)))
        replays = 0
        while replays < _REPLAYS or not all(has_run_all(loop) for _, loop in loops):
            for memory in (called, *(memory for memory, _ in loops)):
                memory.renew(self._held, replays)
            replays += 1
            self.run(called)
            expected = called.read(self._held)
            for memory, loop in loops:
                loop.replay(self.queue)
                assert memory.read(self._held) == expected, f"{loop.fuse}: {self.steps}"
        sources, loop = list(loops[-1][1].fused.values()), loops[-1][1]
        assert not sources or "fused" in list_plans(loop), "no fused plan ran"
        return sources


def list_plans(loop: Executable) -> list[str]:
    """Return the plans of a graph that take turns: "fused", or "" for one as captured."""
    return [plan.tried for plan in _find_plans(loop)]


def has_run_all(loop: Executable) -> bool:
    """Return whether each plan of a graph had a turn, and the fused one two."""
    plans = _find_plans(loop)
    if not plans or (trial := plans[0].trial) is None:
        return bool(plans)
    turns = map(len, trial._timings)
    return all(count > (one.tried == "fused") for one, count in zip(plans, turns, strict=True))


def _find_plans(loop: Executable) -> list[Any]:
    segments: Any = loop._list_captured_segments()
    kinds = [kind for one in segments for kind in one._buffer.plans._found.values()]
    return list(max(kinds, key=len, default=()))
