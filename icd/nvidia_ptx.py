"""PTX of NVIDIA's OpenCL compiler, translated into PTX that CUDA runs.

A program's binary is PTX text. OpenCL's driver gives kernels what CUDA does not: the registers
`%envreg0` to `%envreg9`, pointers to local memory as parameters, and a bank of constants for each
`__constant` argument. `PtxProgram` reads the kernels of a text, and says of each why CUDA cannot
run it. `PtxProgram.translate` makes the text for one number of dimensions and one global offset.

Every rule is a function of one text. It was measured with the driver 580.159 on an H200.

    >>> program = PtxProgram(text)
    >>> program.kernels["axpy"].parameters[0].kind
    'memory'
    >>> cuda_text = program.translate(program.variant(1, (0, 0, 0)))

This module loads no library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

#: Bytes of a parameter by the digits of its type: `.u64` has 8.
_WIDTHS: Final = {"8": 1, "16": 2, "32": 4, "64": 8}

#: What the registers mean that OpenCL's driver sets for a launch.
_FIRST_GROUP, _OFFSET, _GROUPS, _WORK_DIM = range(3), range(3, 6), range(6, 9), 9

_REGISTER: Final = re.compile(r"mov\.b32(\s+)(%r\d+),\s*%envreg(\d+);")
_ENTRY: Final = re.compile(r"(?:\.visible\s+)?\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{;]*)\{")
_FUNCTION: Final = re.compile(r"^(?:\.visible\s+)?\.func\b[^{;]*\{", re.MULTILINE)
_PARAMETER: Final = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+"
    r"(?:\.ptr\s+(?:\.(?P<space>global|const|shared|\w+)\s+)??\.align\s+(?P<of>\d+)\s+)?"
    r"(?P<name>[\w$]+)(?:\[(?P<length>\d+)\])?\s*"
)
_REQUIRED: Final = re.compile(r"\.reqntid\s+(\d+)(?:,\s*(\d+))?(?:,\s*(\d+))?")
_VARIABLE: Final = re.compile(
    r"^(?:\.visible\s+)?\.global\s+(?:\.align\s+\d+\s+)?\.\w+\s+([\w$]+)", re.MULTILINE
)
_IMAGE_TYPES: Final = frozenset({"texref", "samplerref", "surfref"})
#: What a kernel begins with that may start early. Without more, it starts when all groups of the
#: one before it have ended.
_WAIT: Final = "\n\tgriddepcontrol.wait;"
#: What it begins with besides to let the next one start while it still runs.
_LETS_START: Final = "\n\tgriddepcontrol.launch_dependents;"
#: The first PTX and the first GPU that have that.
_WAIT_SINCE: Final = (7, 8), 90
#: How the names of variables begin that nobody writes: string literals, and tables of functions
#: such as sin.
_CONSTANT: Final = ("_$_str", "__cudart_")

#: The dynamic part of local memory, to which `__local` arguments are offsets.
_SHARED: Final = ".extern .shared .align 128 .b8 __fl_shared[];"


_NOWHERE: Final = (0, 0, 0)


class PtxError(ValueError):
    """A text is not the PTX of NVIDIA's OpenCL compiler, or has something unknown in it."""


@dataclass(frozen=True)
class PtxParameter:
    """A parameter of a kernel.

    Attributes:
        kind: "value", "memory" (an address), "local" (an offset in local memory), "image", or
            "other" (nothing that is known).
        size: in bytes; of an address 8.
        align: in bytes: of the value, or of what the pointer leads to.
        loadable: whether it is a number or an address that the kernel only loads as a whole. Then
            it may lie in memory (`Variant.loads`).
    """

    name: str
    kind: str
    size: int
    align: int
    loadable: bool = False


@dataclass(frozen=True)
class PtxKernel:
    """A kernel of a program.

    Attributes:
        parameters: in the order of the kernel's arguments.
        required: reqd_work_group_size, None if the kernel has none.
        why_not: why CUDA cannot run it, None if it can.
    """

    name: str
    parameters: tuple[PtxParameter, ...]
    required: tuple[int, int, int] | None
    why_not: str | None


@dataclass(frozen=True)
class Variant:
    """What a translated text depends on. What the program does not ask for is 0.

    Attributes:
        work_dim: the number of dimensions.
        offset: the global offset in each dimension; 32 bits, as OpenCL's driver has it.
        loads: kernels (by their names) of which the text has another one beside it, and bits of
            the parameters that this one loads from memory. See `make_loading_name`.
        waits: whether kernels may start before the kernel that they come after has ended, and wait
            for it themselves. See `PtxProgram.can_wait`.
        lets_start: whether they let the next one start while they run.
        first: the first work-group of a launch that is a part of another one. Its offset is that of
            this work-group.
        groups: the work-groups of the whole launch that it is a part of; zeros if it is none.
    """

    work_dim: int
    offset: tuple[int, int, int]
    loads: tuple[tuple[str, int], ...] = ()
    waits: bool = False
    lets_start: bool = False
    first: tuple[int, int, int] = _NOWHERE
    groups: tuple[int, int, int] = _NOWHERE


def make_loading_name(kernel: str, loads: int) -> str:
    """Return the name of a kernel that loads some parameters from memory.

    It has the address of the value in place of each.

    Args:
        loads: a bit for each of these parameters. Without any it is the kernel itself.
    """
    return f"{kernel}_fl_{loads:x}" if loads else kernel


class PtxProgram:
    """The kernels of a program's binary.

    Args:
        text: the PTX, without the zeros at its end.

    Raises:
        PtxError: it is not such text, or uses a register in an unknown way.
    """

    def __init__(self, text: str) -> None:
        if not re.search(r"^\.version\s", text, re.MULTILINE) or ".address_size 64" not in text:
            raise PtxError("its binary is not PTX of 64 bits")
        self.text = text
        left = re.search(r"%envreg\w*", _REGISTER.sub("", text))
        numbers = {int(match[3]) for match in _REGISTER.finditer(text)}
        if left or not numbers <= set(range(10)):
            register = left[0] if left else f"%envreg{max(numbers)}"
            raise PtxError(f"it uses the register {register} in an unknown way")
        self._registers = frozenset(numbers)

    @cached_property
    def _entries(self) -> list[tuple[re.Match[str], int]]:
        """Where kernels begin, and the place after each."""
        return [(match, _find_end(self.text, match.end())) for match in _ENTRY.finditer(self.text)]

    @cached_property
    def _functions(self) -> str:
        """The text of all functions that are not kernels."""
        found = _FUNCTION.finditer(self.text)
        return "".join(
            self.text[match.start() : _find_end(self.text, match.end())] for match in found
        )

    @cached_property
    def kernels(self) -> dict[str, PtxKernel]:
        """Its kernels by name."""
        return {match[1]: self._parse_kernel(match, end) for match, end in self._entries}

    def _parse_kernel(self, match: re.Match[str], end: int) -> PtxKernel:
        own = self.text[match.end() : end]
        parameters = tuple(
            replace(one, loadable=one.loadable and _is_only_loaded(own, one.name))
            for one in _parse_parameters(match[2])
        )
        sizes = _REQUIRED.search(match[3])
        required = (int(sizes[1]), int(sizes[2] or 1), int(sizes[3] or 1)) if sizes else None
        why_not = self._explain_not_loadable(parameters, own + self._functions)
        return PtxKernel(match[1], parameters, required, why_not)

    def _explain_not_loadable(self, parameters: tuple[PtxParameter, ...], code: str) -> str | None:
        kinds = {parameter.kind for parameter in parameters}
        if "image" in kinds:
            return "it uses an image or a sampler"
        if "other" in kinds:
            return "it has a parameter of an unknown kind"
        if re.search(r"^\s*vprintf\b", code, re.MULTILINE):
            return "it prints"
        for match in _VARIABLE.finditer(self.text):
            if not match[1].startswith(_CONSTANT) and has_mention(code, match[1]):
                return f"CUDA would have its own copy of the program's variable {match[1]}"
        return None

    @cached_property
    def can_wait(self) -> bool:
        """Whether the program's version and its GPU have the instructions of `Variant.waits`."""
        version = re.search(r"^\.version\s+(\d+)\.(\d+)", self.text, re.MULTILINE)
        target = re.search(r"^\.target\s+sm_(\d+)", self.text, re.MULTILINE)
        if version is None or target is None:
            return False
        since, gpu = _WAIT_SINCE
        return (int(version[1]), int(version[2])) >= since and int(target[1]) >= gpu

    @property
    def asks(self) -> Variant:
        """Which of its launches' properties a translated text depends on: 1 where it does."""
        used = [int(register in self._registers) for register in _OFFSET]
        return Variant(int(_WORK_DIM in self._registers), (used[0], used[1], used[2]))

    def variant(self, work_dim: int, offset: tuple[int, int, int]) -> Variant:
        """Return which translation a launch needs.

        Args:
            work_dim: the number of dimensions.
            offset: the global offset, 0 in dimensions that the launch does not have.
        """
        used = tuple(
            value & 0xFFFFFFFF if register in self._registers else 0
            for register, value in zip(_OFFSET, offset, strict=True)
        )
        return Variant(work_dim * (_WORK_DIM in self._registers), (used[0], used[1], used[2]))

    def choose_part(
        self,
        variant: Variant,
        first: tuple[int, int, int],
        groups: tuple[int, int, int],
        local: tuple[int, int, int],
    ) -> Variant:
        """Return which translation a part of a launch needs.

        Args:
            first: the first work-group of the part.
            groups: the work-groups of the whole launch.
            local: the work-items of a work-group.
        """
        used = (self._registers & set(numbers) for numbers in (_FIRST_GROUP, _OFFSET, _GROUPS))
        asks_first, asks_offset, asks_groups = map(bool, used)
        x, y, z = (
            (offset + group * size) & 0xFFFFFFFF if asks_offset else 0
            for offset, group, size in zip(variant.offset, first, local, strict=True)
        )
        return replace(
            variant,
            offset=(x, y, z),
            first=first if asks_first else _NOWHERE,
            groups=groups if asks_groups else _NOWHERE,
        )

    def translate(self, variant: Variant) -> str:
        """Return the text for CUDA, without the kernels that have images."""
        parts, place = list[str](), 0
        for match, end in self._entries:
            parts.append(self.text[place : match.start()])
            kernel = self.kernels[match[1]]
            if all(parameter.kind not in ("image", "other") for parameter in kernel.parameters):
                begin, code = self.text[match.start() : match.end()], self.text[match.end() : end]
                first = _WAIT if variant.waits else ""
                code = f"{_LETS_START if variant.lets_start else ''}{first}{code}"
                own = _add_local_memory(f"{begin}{code}", kernel)
                loads = [bits for name, bits in variant.loads if name == kernel.name]
                parts += [own, *(_add_loads(own, kernel, bits) for bits in loads)]
            place = end
        text = "".join([*parts, self.text[place:]])
        if ".ptr .const" in text:
            text = _add_global_constants(text)
        if "__fl_shared" in text:
            text = text.replace(".address_size 64", f".address_size 64\n{_SHARED}", 1)
        return _add_printing(_REGISTER.sub(lambda match: _replace_register(match, variant), text))


def _find_end(text: str, place: int) -> int:
    """Return the place after the block whose `{` is before `place`."""
    depth = 1
    for match in re.compile("[{}]").finditer(text, place):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            return match.end()
    raise PtxError("a block of it has no end")


def _parse_parameters(text: str) -> Iterator[PtxParameter]:
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _PARAMETER.fullmatch(part)
        if match is None:
            yield PtxParameter(part, "other", 0, 1)
            continue
        kind, size = "value", _WIDTHS.get(match["type"].lstrip("bsuf"), 0)
        if match["of"]:
            spaces = {"global": "memory", "const": "memory", "shared": "local"}
            kind = spaces.get(match["space"] or "", "other")
        elif match["type"] in _IMAGE_TYPES:
            kind = "image"
        elif not size:
            kind = "other"
        is_array, name = bool(match["length"] or match["align"]), match["name"]
        size *= int(match["length"] or 1)
        align = int(match["of"] or match["align"] or size)
        yield PtxParameter(name, kind, size, align, kind in ("value", "memory") and not is_array)


def _make_mention(name: str) -> str:
    """A pattern for a name."""
    return rf"(?<![\w$]){re.escape(name)}(?![\w$])"


def has_mention(code: str, name: str) -> bool:
    """Return whether a text of PTX names something."""
    return re.search(_make_mention(name), code) is not None


def _make_load(name: str) -> re.Pattern[str]:
    """A pattern for an instruction that loads a parameter from its beginning."""
    at = rf"\[{re.escape(name)}(?:\+0)?\]"
    return re.compile(rf"^([ \t]*)ld\.param(\.[bsuf]\d+\s+%\w+,\s*){at};", re.MULTILINE)


def _is_only_loaded(code: str, name: str) -> bool:
    return len(re.findall(_make_mention(name), code)) == len(_make_load(name).findall(code))


# The rules


def _replace_register(match: re.Match[str], variant: Variant) -> str:
    """A register of OpenCL's."""
    space, target, number = match[1], match[2], int(match[3])
    if number in _GROUPS and not any(variant.groups):
        return f"mov.u32{space}{target}, %nctaid.{'xyz'[number - _GROUPS.start]};"
    if number in _GROUPS:
        value = variant.groups[number - _GROUPS.start]
    elif number in _FIRST_GROUP:
        value = variant.first[number]
    else:
        value = variant.work_dim if number == _WORK_DIM else variant.offset[number - _OFFSET.start]
    return f"mov.u32{space}{target}, {value};"


def _add_local_memory(text: str, kernel: PtxKernel) -> str:
    """A pointer to local memory becomes an offset in the launch's dynamic part of it."""
    for parameter in kernel.parameters:
        if parameter.kind == "local":
            name = re.escape(parameter.name)
            text = re.sub(rf"\.ptr\s+\.shared\s+\.align\s+\d+\s+({name})(?![\w$])", r"\1", text)
            text = re.sub(
                rf"ld\.param\.u64\s+(%rd\d+),\s*\[{name}\];",
                r"\g<0>\n\t{\n\t.reg .b64 %fl_base;\n\tmov.u64 \t%fl_base, __fl_shared;"
                r"\n\tadd.s64 \t\1, \1, %fl_base;\n\t}",
                text,
            )
    return text


def _add_loads(text: str, kernel: PtxKernel, loads: int) -> str:
    """A kernel that is given the addresses of some parameters. Nothing writes them while it runs,
    so each load may be moved."""
    made = re.sub(
        rf"(\.entry\s+){_make_mention(kernel.name)}",
        rf"\1{make_loading_name(kernel.name, loads)}",
        text,
        count=1,
    )
    for number, parameter in enumerate(kernel.parameters):
        if loads >> number & 1:
            name = parameter.name
            declared = re.compile(rf"\.param\s[^,()]*{_make_mention(name)}")
            made = declared.sub(f".param .u64 {name}", made, count=1)
            made = _make_load(name).sub(
                rf"\1{{\n\1.reg .b64 %fl_at;\n\1ld.param.u64 %fl_at, [{name}];"
                r"\n\1ld.global.nc\2[%fl_at];\n\1}",
                made,
            )
    return f"\n{made}"


def _add_global_constants(text: str) -> str:
    """A `__constant` argument is a buffer, so constants lie in global memory in the whole text."""
    text = text.replace(".ptr .const", ".ptr .global").replace("ld.const", "ld.global")
    return re.sub(r"^\.const ", ".global ", text.replace("cvta.const", "cvta.global"), flags=re.M)


def _add_printing(text: str) -> str:
    """CUDA knows vprintf as a function from outside."""
    return re.sub(r"^(\.func\s*\([^)]*\)\s*vprintf\b)", r".extern \1", text, flags=re.M)
