"""What engines have built of a command list, for each kind of queue that it met, and how changes reach it.

A kind of queue is planned (plan.py) and built when it is first needed. Where a driver refuses what an
engine has built, it is planned anew without that engine. C knows all of it (`fl_buffer`), since it
makes updates, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from .._native import ffi, lib
from ..calls import wait_for
from ..errors import OpenCLError
from .commands import CommandList
from .engine import Built, QueueKind
from .engines import Choice
from .plan import Part, Plan, make_plan


@dataclass(frozen=True)
class Build:
    """A plan for a kind of queue, and what its parts are: one for each."""

    plan: Plan
    parts: Sequence[Built]


class _Changing(AbstractContextManager[None]):
    """A block in which one thread of Python changes a command-buffer; blocks may be inside each other."""

    def __init__(self, native: Any, lock: Any) -> None:
        self._native, self._lock, self._depth = native, lock, 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1
        if self._depth == 1:
            lib.fl_begin_changes(self._native)

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            lib.fl_end_changes(self._native)
        self._lock.release()


class Builds:
    """The builds of a command list. The caller holds `lock` for all methods.

    Args:
        commands: what is built.
        choice: the engines.
        given: what an engine has built already, to be used on whatever queue, or None.
        lock: guards it against other threads of Python.

    Attributes:
        native: the command-buffer as C knows it, an `fl_buffer *`.
    """

    def __init__(
        self, commands: CommandList, choice: Choice, given: Built | None, lock: Any
    ) -> None:
        self.native = ffi.new("fl_buffer *")
        self._commands, self._choice, self._given = commands, choice, given
        self._builds: dict[QueueKind, Build] = {}
        self._refused: dict[QueueKind, dict[str, str]] = {}  # why a driver refused an engine
        self._left: dict[QueueKind, dict[str, dict[int, str]]] = {}  # what engines learned to leave
        self._listed: Any = None  # what `native` points to
        self._changing = _Changing(self.native, lock)
        if given is not None:
            self._list()

    def of(self, kind: QueueKind) -> Build:
        """The build for a kind of queue. Raises OpenCLError if the last engine cannot build its part."""
        found = self._builds.get(kind)
        while found is None:
            found = self._make(kind)
            if found is not None:
                self._builds[kind] = found
                self._list()
        return found

    def _make(self, kind: QueueKind) -> Build | None:
        """Plan and build; None if an engine failed: then it is to be planned without that one."""
        if self._given is not None:
            (engine,) = self._choice.engines
            plan = Plan([Part(engine, 0, len(self._commands))], {engine.name: self._choice.why})
            return Build(plan, [self._given])
        refused = self._refused.setdefault(kind, {})
        plan = make_plan(self._commands, kind, self._choice, refused, self._left.get(kind, {}))
        built: list[Built] = []
        for part in plan.parts:
            try:
                made = part.engine.build(self._commands.part(part.first, part.end), kind)
            except OpenCLError as refusal:
                for one in built:
                    one.close()
                if part.engine is self._choice.engines[-1]:
                    raise
                refused[part.engine.name] = f"the driver refused it, {refusal}"
                return None
            made.native.first = part.first
            built.append(made)
        return Build(plan, built)

    def refuse(self, kind: QueueKind, reason: str) -> None:
        """Forget a build of one part, which the driver has refused to enqueue."""
        self._drop(kind, {part.engine.name: reason for part in self._builds[kind].plan.parts})

    def learns(self, kind: QueueKind) -> bool:
        """Whether a part of a build measures its runs, and nothing was learned from that yet."""
        parts = self._builds[kind].parts
        return self._choice.is_auto and kind not in self._left and any(one.learns for one in parts)

    def learn(self, kind: QueueKind) -> bool:
        """Ask a build what its first runs have taught; forget it if an engine leaves commands to others.

        Returns:
            Whether everything is known. Nothing more is learned then.
        """
        build, left = self._builds[kind], dict[str, dict[int, str]]()
        with self.changing():
            for part, one in zip(build.plan.parts, build.parts, strict=True):
                learned = one.learned()
                if learned is None:
                    return False
                longer = {part.first + number: why for number, why in learned.items()}
                left.setdefault(part.engine.name, {}).update(longer)
        self._left[kind] = left
        if any(left.values()):
            self._drop(kind, {})
        return True

    def _drop(self, kind: QueueKind, refused: Mapping[str, str]) -> None:
        self._refused.setdefault(kind, {}).update(refused)
        build = self._builds.pop(kind)
        self._list()
        for one in build.parts:
            one.close()

    def _all(self) -> list[Built]:
        return [one for build in self._builds.values() for one in build.parts]

    def _list(self) -> None:
        """Tell C what was built, for updates."""
        if not self._commands.updatable:
            return
        built = self._all() if self._given is None else [self._given]
        rows = ffi.new("fl_built *[]", [one.native for one in built])
        with self.changing():
            self._listed, self.native.built = (built, rows), rows
            self.native.built_count = len(built)
            self.native.python_updates = any(not one.native.update for one in built)

    # changes

    def changing(self) -> AbstractContextManager[None]:
        """Keep updates in C and other threads away for the length of a block, in which nothing is enqueued."""
        return self._changing

    def tell(self, changes: Mapping[int, bool], last_event: int) -> int:
        """Tell everything that was built of changed commands.

        Args:
            changes: the numbers of the commands, and whether each launches another kernel now.
            last_event: the event of the last enqueue, 0 for none.

        Returns:
            OpenCL's code.
        """
        code = 0
        if len(changes) > 1:  # kernels first: by them launches follow each other
            changes = dict(sorted(changes.items(), key=lambda change: not change[1]))
        for command, relaunched in changes.items():
            code = lib.fl_update_buffer(self.native, command, relaunched) or code
        if self.native.python_updates:
            code = code or self._tell_python(list(changes), last_event)
        return code

    def _tell_python(self, commands: Sequence[int], last_event: int) -> int:
        """Update what C cannot update. Where other engines can run it, a refusal is none."""
        if self._given is not None:
            return _tell_one(self._given, 0, commands, last_event)
        for kind, build in list(self._builds.items()):
            for part, one in zip(build.plan.parts, build.parts, strict=True):
                inside = [number for number in commands if part.first <= number < part.end]
                if _tell_one(one, part.first, inside, last_event):
                    self._drop(kind, {part.engine.name: "the driver refused an update"})
                    break
        return 0

    # looks, the end

    def explain(self, kind: QueueKind) -> str:
        """How commands are run on such a queue and why so: a line for each engine."""
        build = self.of(kind)
        why = {**self._choice.explain_others(), **build.plan.why}
        wide = max(map(len, why))
        lines = [f"{self._commands.count} commands"]
        for name, reason in why.items():
            parts = zip(build.plan.parts, build.parts, strict=True)
            ran = [(part, one) for part, one in parts if part.engine.name == name]
            for part, one in ran:
                which = f"{part.first}–{part.end - 1}: " if len(build.parts) > 1 else ""
                lines.append(f"  {name:{wide}}  {which}{one.explain()}; {reason}")
            if not ran:
                lines.append(f"  {name:{wide}}  not chosen: {reason}")
        return "\n".join(lines)

    def close(self) -> None:
        """Give back what engines have built; what was enqueued runs to its end."""
        self.native.built_count = 0
        for one in self._all():
            one.close()
        self._builds.clear()


def _tell_one(built: Built, first: int, commands: Sequence[int], last_event: int) -> int:
    if built.native.update or not commands:
        return 0
    if built.updates_wait and last_event:
        wait_for(last_event)
    return built.update([number - first for number in commands])
