"""The state machine: the rules of all objects and commands, and three that know only the ABI data.

- `refused` calls any entry point with a flaw that the adapter has to see. The code is a listed one.
- `abroad` passes an object of another driver among others. The call is refused.
- `anything` calls any entry point with arguments of the right types. It answers some code, and
  counts references as it should.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import rule

from fairlead.loader.base.abi import Function, Parameter
from fairlead.loader.ur.abi import UR
from fairlead.plugins.opencl.core import adapter as the_adapter
from helpers.fuzz.arguments import Arguments, Flaw
from helpers.fuzz.library import ENTRY_POINTS, Failure
from helpers.fuzz.mixing import MixingRules
from helpers.fuzz.model import KINDS, Context, Event, Queue, Thing

_BY_TYPE: Final = {kind.type: kind for kind in KINDS}

#: Entry points with rules of their own, since a kernel writes where its arguments point; and those
#: that end objects which rules know.
_NOT_ANYTHING: Final = frozenset(
    (
        "urAdapterRelease",
        "urAdapterRetain",
        "urAdapterGet",
        "urEnqueueKernelLaunch",
        "urEnqueueKernelLaunchWithArgsExp",
        "urCommandBufferAppendKernelLaunchExp",
        "urCommandBufferAppendKernelLaunchWithArgsExp",
        "urUSMPoolDestroyExp",
        "urUSMFree",
        "urEnqueueUSMFreeExp",
        "urAdapterSetLoggerCallback",
    )
)

#: What changes none of the objects that it is given.
_LOOKS: Final = (
    "GetInfo",
    "GetNativeHandle",
    "GetBuildInfo",
    "GetGroupInfo",
    "GetSubGroupInfo",
    "GetProfilingInfo",
    "KernelCreate",
)

#: Types of objects of which only those that `anything` has made may be changed.
_KEPT: Final = frozenset(
    (
        "ur_mem_handle_t",
        "ur_kernel_handle_t",
        "ur_program_handle_t",
        "ur_usm_pool_handle_t",
        "ur_exp_command_buffer_handle_t",
        "ur_exp_command_buffer_command_handle_t",
        "ur_sampler_handle_t",
    )
)

#: Where mixed objects are nothing wrong.
_MIXES: Final = ("urEventWait", "urContextCreate", "urDeviceGet")


class Fuzz(MixingRules):
    """All rules."""

    def __init__(self) -> None:
        super().__init__()
        self.loose: list[tuple[Context, str, int]] = []  # memory of `anything`, and what ends it

    # what has to be refused

    @rule(data=st.data())
    def refused(self, data: Any) -> None:
        """Call entry points with one or two wrong arguments.

        Entry points may be unsupported anyway.
        """
        self.data = data
        for _ in range(self.number(1, 8)):
            self._refused()

    def _refused(self) -> None:
        function = UR.functions[self.pick(ENTRY_POINTS)]
        made = self.arguments(self.live)
        arguments = made.of(function)
        flaws = list(made.flaws(function, arguments))
        if not flaws:
            return
        chosen = [self.pick(flaws)]
        if self.chance(30) and (
            others := [flaw for flaw in flaws if flaw.values.keys().isdisjoint(chosen[0].values)]
        ):
            chosen.append(self.pick(others))
        self._refuse(function, arguments, chosen, made.missing)

    def _refuse(
        self,
        function: Function,
        arguments: dict[str, Any],
        flaws: list[Flaw],
        codes: tuple[str, ...],
    ) -> None:
        for flaw in flaws:
            arguments |= flaw.values
            codes += flaw.codes
        if function.name not in the_adapter.declared:
            codes = ("UNSUPPORTED_FEATURE",)
        self.library.expect(self.library(function.name, **arguments), *codes)

    @rule(data=st.data())
    def abroad(self, data: Any) -> None:
        """Calls with an object of another driver's among ours."""
        self.data = data
        for _ in range(self.number(1, 4)):
            self._abroad()

    def _abroad(self) -> None:
        foreign = self.session.foreign()
        function = UR.functions[self.pick(_mixing())]
        made = self.arguments(self.live)
        arguments = made.of(function)
        places = [
            p
            for p in function.parameters
            if p.type in foreign and (not p.stars or (p.length and "out" not in p.words))
        ]
        p = self.pick(places)
        if p.stars:
            arguments |= {p.length: 1, p.name: (ctypes.c_void_p * 1)(foreign[p.type])}
        else:
            arguments[p.name] = foreign[p.type]
        others = [
            arguments[o.name]
            for o in function.parameters
            if o is not p and o.type in _BY_TYPE and not _is_out(o)
        ]
        if not any(others):
            return
        self.unblock()
        code = self.library(function.name, **arguments)
        if code == "SUCCESS":
            raise Failure(f"an object of another driver's was accepted\n{self.library.lines[-1]}")

    # what may be anything

    @rule(data=st.data())
    def anything(self, data: Any) -> None:
        """Calls that may do something."""
        self.data = data
        for _ in range(self.number(1, 8)):
            self._anything()

    def _anything(self) -> None:
        function = UR.functions[self.pick(_tame())]
        looks = function.name.endswith(_LOOKS) or any(
            word in p.words for p in function.parameters for word in ("retain",)
        )
        made = self.arguments(functools.partial(self._own, looks=looks), wild=True)
        arguments = made.of(function)
        for p in function.parameters:  # what is given back begins as nothing
            if _is_out(p) and isinstance(arguments[p.name], int) and arguments[p.name]:
                ctypes.memset(arguments[p.name], 0, 64)
        self.unblock()
        if self.library(function.name, **arguments) == "SUCCESS":
            self._count(function, arguments)

    def _own(self, type_name: str, looks: bool) -> list[int]:
        """Return the handles that a call may use.

        If the model knows the state of a kind, only handles of unknown state are returned.
        """
        if looks or type_name not in _KEPT:
            pending = [event.handle for event in self.of(Event) if not event.signals]
            return [handle for handle in self.live(type_name) if handle not in pending]
        return [
            one.handle
            for one in self.things
            if one.type == type_name and one.foreign and not one.alias
        ]

    def _count(self, function: Function, arguments: dict[str, Any]) -> None:
        """The references that a call has made or ended."""
        context = self._context_of(arguments)
        for p in function.parameters:
            value = arguments[p.name]
            if p.type in _BY_TYPE and not p.stars:
                thing = next(
                    (one for one in self.things if one.handle == value and one.type == p.type), None
                )
                if thing is not None and "retain" in p.words:
                    thing.references += 1
            elif p.type in _BY_TYPE and _is_out(p) and value and not p.length:
                self._add_made(
                    function, p.type, ctypes.c_void_p.from_address(value).value or 0, context
                )
            elif p.type in _BY_TYPE and _is_out(p) and value:
                for index in range(min(arguments[p.length], 16)):
                    self._add_made(
                        function,
                        p.type,
                        ctypes.c_void_p.from_address(value + 8 * index).value or 0,
                        context,
                    )
        if function.name == "urEventSetCallback":
            next(
                one for one in self.of(Event, foreign=True) if one.handle == arguments["hEvent"]
            ).called_back += 1
        self._count_memory(function, arguments, context)

    def _add_made(
        self, function: Function, type_name: str, handle: int, context: Context | None
    ) -> None:
        if not handle or (
            type_name == "ur_device_handle_t"
            and handle in (self.session.device, self.session.other)
        ):
            return
        alias = function.name.endswith("CreateWithNativeHandle")
        thing = self.add(_BY_TYPE[type_name](handle, context, foreign=True, alias=alias))
        if "DevicePoolExp" in function.name:  # it ends with the context, whoever has references
            self.release(thing)

    def _count_memory(
        self, function: Function, arguments: dict[str, Any], context: Context | None
    ) -> None:
        if "ppMem" in arguments and context is not None:
            self.loose.append(
                (context, "urUSMFree", ctypes.c_void_p.from_address(arguments["ppMem"]).value or 0)
            )
        elif (
            function.name in ("urUSMImportExp", "urUSMHostAllocRegisterExp") and context is not None
        ):
            self.loose.append(
                (context, "urUSMReleaseExp", arguments.get("pMem") or arguments["pHostMem"])
            )
        elif function.name in ("urUSMReleaseExp", "urUSMHostAllocUnregisterExp"):
            address = arguments.get("pMem") or arguments["pHostMem"]
            self.loose = [one for one in self.loose if one[2] != address]

    def _context_of(self, arguments: dict[str, Any]) -> Context | None:
        """The context that a call is about."""
        for name in ("hContext", "hQueue", "hProgram", "hBuffer", "hKernel"):
            thing = next((one for one in self.things if one.handle == arguments.get(name)), None)
            if isinstance(thing, Context):
                return thing
            if thing is not None and thing.context is not None:
                return thing.context
        return None

    def _prepare_end(self, thing: Thing) -> None:
        if isinstance(thing, Context):
            for context, routine, address in [one for one in self.loose if one[0] is thing]:
                self.unblock()
                self.library.ok(routine, hContext=context.handle, pMem=address)
                self.loose.remove((context, routine, address))
        super()._prepare_end(thing)

    # arguments

    def arguments(self, live: Any, wild: bool = False) -> Arguments:
        """What makes arguments, for `live` objects."""
        return Arguments(
            self.data.draw,
            live,
            lambda name: self.stale.get(name, []),
            self._native,
            self.host.scratch,
            wild,
        )

    def _native(self, parameter: str) -> int:
        """One of OpenCL's handles for a parameter, of an object that there is."""
        word = parameter.removeprefix("hNative")
        if word in ("Platform", "Device"):
            handle = self.session.platform if word == "Platform" else self.session.device
            return self.library.make(
                f"ur{word}GetNativeHandle", f"phNative{word}", **{f"h{word}": handle}
            )
        kinds = {"Context": Context, "Queue": Queue, "Event": Event}
        found = [
            one for one in self.things if type(one).__name__ == {"Mem": "Buffer"}.get(word, word)
        ]
        found = [one for one in found if not isinstance(one, Event) or one.signals]
        if not found or (word in kinds and self.chance(10)):
            return 0
        return self.library.make(
            f"ur{word}GetNativeHandle", f"phNative{word}", **{f"h{word}": self.pick(found).handle}
        )


def _is_out(p: Parameter) -> bool:
    """Return whether a parameter is an output.

    A handle that is changed, as by urProgramCompile, is none.
    """
    return p.stars > 0 and not {"out", "inout"}.isdisjoint(p.words)


@functools.cache
def _mixing() -> tuple[str, ...]:
    """The entry points that are given several objects which have to fit to each other."""
    known = {kind.type for kind in KINDS} | {"ur_device_handle_t"}
    return tuple(
        name
        for name in ENTRY_POINTS
        if name in the_adapter.declared
        and not name.startswith(_MIXES)
        and sum(p.type in known and not _is_out(p) for p in UR.functions[name].parameters) > 1
    )


@functools.cache
def _tame() -> tuple[str, ...]:
    """Return the entry points that `anything` calls: all, except the releases, which rules do."""
    words = {
        name: {word for p in UR.functions[name].parameters for word in p.words}
        for name in ENTRY_POINTS
    }
    return tuple(
        name
        for name in ENTRY_POINTS
        if name in the_adapter.declared
        and name not in _NOT_ANYTHING
        and "release" not in words[name]
    )
