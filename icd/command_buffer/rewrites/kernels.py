"""The kernels of launches: what was read of their sources, and why one cannot be fused."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from pycparser import c_ast

from ...built_source import BuiltSource
from ...calls import decode_text, query_bytes, query_kernel_name, query_program
from ...kernel_source.c_types import SourceTypes
from ...kernel_source.errors import UnreadableKernel
from ...kernel_source.parsing import write_opencl
from ...kernel_source.reading import ItemLoop, KernelAccess, KernelParameter, read_kernel
from ...kernel_source.syntax import find_needed, list_names, uses_of_ids, walk_tree
from .arguments import NotFused, ask_once
from .uses import ListSnapshot

#: Options that change nothing that a kernel calculates. Others may let it round in another way.
_HARMLESS: Final = ("-cl-std=", "-cl-kernel-arg-info", "-w")
#: Functions whose answers follow from an item's place in the range, and what they are asked for.
ITEM_FUNCTIONS: Final = frozenset({"get_global_id", "get_global_size"})
DIMENSIONS: Final = ("0", "1", "2")
#: Attributes, and words in them, that change nothing that a kernel calculates.
_ATTRIBUTES: Final = re.compile(
    r"reqd_work_group_size|work_group_size_hint|vec_type_hint|opencl_unroll_hint|always_inline"
    r"|unused|\d+|(u?(char|short|int|long)|float|double|half)\d*"
)
#: Pragmas that a fused program may have for all of its kernels.
_PRAGMAS: Final = re.compile(r"OPENCL\s+EXTENSION\b")
_LOOPS: Final = (c_ast.For, c_ast.While, c_ast.DoWhile)
#: Names of a fused kernel's own. A kernel that had one of them would get its value, or hide it.
_OWN_NAMES: Final = re.compile(r"\b(fl|fairlead)_\w+")


@dataclass(frozen=True, eq=False)
class KernelRead:
    """A kernel that can be a part of a fused one.

    Attributes:
        access: what it reads and writes.
        options: the build options that its program needs.
        elements: how an item's element of an argument is written, where it is always written so: by
            the argument's name, the variable that is indexed, and the type of the element.
        declared: what it needs of its program: the text, by name.
    """

    access: KernelAccess
    options: str
    elements: Mapping[str, tuple[str, str]]
    declared: Mapping[str, str]

    @property
    def parameters(self) -> Sequence[KernelParameter]:
        """Its parameters, in order."""
        return self.access.parameters

    @property
    def loop(self) -> ItemLoop | None:
        """The loop over items; None if each work-item is an item."""
        return self.access.loop


def find_kernel(kernel: int, snapshot: ListSnapshot) -> KernelRead:
    """Return what is known of a kernel that each item runs alone. Raises NotFused."""

    def ask() -> KernelRead:
        try:
            return make_kernel_read(*read_access(kernel, snapshot))
        except UnreadableKernel as error:
            raise NotFused(f"its kernel is not understood: {error}") from None

    return ask_once(snapshot.answers, (find_kernel, kernel), ask)


def read_access(kernel: int, snapshot: ListSnapshot) -> tuple[KernelAccess, str]:
    """Return what a kernel reads and writes, and the build options that its program needs.

    Args:
        kernel: its handle.

    Raises:
        NotFused: it is not known.
    """
    return ask_once(snapshot.answers, kernel, lambda: _read_access(kernel, snapshot))


def _read_access(kernel: int, snapshot: ListSnapshot) -> tuple[KernelAccess, str]:
    program, device = query_program(kernel), snapshot.commands.devices[0]
    source = snapshot.sources.get(program, "")
    if not source.strip():
        raise NotFused("nobody knows the source of its program")
    query = "CL_PROGRAM_BUILD_OPTIONS"
    told = query_bytes(program, "clGetProgramBuildInfo", query, device)
    if told is not None:
        options = os.fsdecode(told.rstrip(b"\0"))
    elif isinstance(source, BuiltSource):
        options = source.options
    else:  # "" would be a guess: options may change how it rounds
        raise NotFused(
            "the driver does not tell its build options: import fairlead before it is built"
        )
    macros = list_macros(device)
    try:
        read = _parse_kernel_of_program(source, options, query_kernel_name(kernel), macros)
    except UnreadableKernel as error:
        raise NotFused(f"its kernel is not understood: {error}") from None
    for path in read[0].program.files:
        if not path.exists() or path.stat().st_ctime >= _find_start():
            raise NotFused(f"{path}, which its program includes, has changed since Python began")
    return read


@lru_cache
def _find_start() -> float:
    """Return when this process began, in seconds since 1970. The driver may have read files since.

    They may change while the driver, or a cache of what was read, has an earlier text of them.
    """
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot)


@lru_cache(1024)
def _parse_kernel_of_program(*text: Any) -> tuple[KernelAccess, str]:
    access, options = parse_kernel(*text)
    for node, *_ in find_needed(access.program.declarations, access.function):
        if own := _OWN_NAMES.search(write_opencl(node)):
            raise UnreadableKernel(f"it has the name {own[0]}, which fused kernels have")
    return access, options


@lru_cache(1024)
def parse_kernel(
    source: str, options: str, name: str, macros: frozenset[tuple[str, str | None]]
) -> tuple[KernelAccess, str]:
    std = re.search(r"-cl-std=CL(\d)\.(\d)", options)
    version = f"{std[1]}{std[2]}0" if std else "120"  # SPEC clBuildProgram: 1.2 without -cl-std
    access = read_kernel(source, options, name, {**dict(macros), "__OPENCL_C_VERSION__": version})
    needed = find_needed(access.program.declarations, access.function)
    unknown = sorted(
        word
        for word, line in access.program.attributes
        if not _ATTRIBUTES.fullmatch(word) and any(one.first <= line <= one.last for one in needed)
    )
    if unknown:  # the tree lacks them, and `packed` or `overloadable` would mean something
        raise UnreadableKernel(f"its program has the attribute {unknown[0]}")
    for pragma in access.program.pragmas:
        if not _PRAGMAS.match(pragma):  # it may hold for a part of the program alone
            raise UnreadableKernel(f"its program has the pragma {pragma}")
    return access, _keep_options(options)


@lru_cache(1024)
def make_kernel_read(access: KernelAccess, options: str) -> KernelRead:
    if access.uses:
        raise UnreadableKernel(f"it uses {', '.join(sorted(access.uses))}")
    pointers = [one.type for one in access.parameters if one.type.kind == "pointer"]
    if any(type_.space != "global" for type_ in pointers):
        raise UnreadableKernel("an argument is not in global memory")
    _check_ids(access)
    return KernelRead(access, options, find_elements(access), declare_needed(access))


@lru_cache(1024)
def declare_needed(access: KernelAccess) -> Mapping[str, str]:
    """Return what a kernel needs of its program: see `KernelRead.declared`."""
    found: dict[str, str] = {}
    for text, is_true in access.program.decisions.items():  # the compiler says if that is right
        found[f"#if {text}"] = f"#if {'!' * is_true}({text})\n#error {text}\n#endif"
    for node, *_ in find_needed(access.program.declarations, access.function):
        is_function = isinstance(node, c_ast.FuncDef)
        if is_function and "_Noreturn" in (node.decl.funcspec or []):  # a kernel
            continue
        name = node.decl.name if is_function else getattr(node, "name", None)
        text = write_opencl(node) + ("" if is_function else ";")
        if found.setdefault(name or text, text) != text:
            raise UnreadableKernel(f"its program declares {name} twice")
    return found


def _check_ids(access: KernelAccess) -> None:
    """Refuse a kernel whose result depends on more of its ids than the number of the item.

    Raises UnreadableKernel.
    """
    loop = access.loop
    if loop is None:
        if others := access.ids - ITEM_FUNCTIONS:
            raise UnreadableKernel(f"it asks for {min(others)}")
        calls = [one for one in walk_tree(access.function) if isinstance(one, c_ast.FuncCall)]
        for node in calls:
            name = node.name.name if isinstance(node.name, c_ast.ID) else ""
            asked = getattr(node.args.exprs[0], "value", "") if name in ITEM_FUNCTIONS else "0"
            if asked not in DIMENSIONS:
                raise UnreadableKernel(f"it calls {name} otherwise than for 0, 1 or 2")
            if name in access.program.functions and uses_of_ids(access.program.functions, node):
                raise UnreadableKernel(f"{name} asks for ids")
        return
    block = access.function.body.block_items
    after = block[block.index(loop.node) + 1 :]
    if any(not isinstance(one, c_ast.EmptyStatement) for one in after):
        raise UnreadableKernel("it goes on after its loop over items")
    if access.returns:
        raise UnreadableKernel("it may end before its loop over items")
    if loop.carried:
        raise UnreadableKernel(f"its loop keeps {min(loop.carried)} from one item to the next")
    if loop.uses_ids:
        raise UnreadableKernel("an item uses ids of its work-item")


@lru_cache(1024)
def has_inner_loops(access: KernelAccess) -> bool:
    """Return whether an item has loops, in the kernel or in a function that it calls."""
    body = access.function.body if access.loop is None else access.loop.node.stmt
    needed = [row.node for row in find_needed(access.program.declarations, access.function)]
    parts = [body, *(node for node in needed if node is not access.function)]
    return any(isinstance(node, _LOOPS) for one in parts for node in walk_tree(one))


@lru_cache(1024)
def find_kinds(access: KernelAccess) -> Mapping[str, str]:
    """Return the types of the elements of arguments, by name, as far as they are known."""
    found = {name: kind for name, (_, kind) in find_elements(access).items()}
    needed = find_needed(access.program.declarations, access.function)
    casts = (one for row in needed for one in walk_tree(row.node) if isinstance(one, c_ast.Cast))
    if any(isinstance(one.to_type.type, c_ast.PtrDecl) for one in casts):
        return found
    targets = {one.name: one.type.target for one in access.parameters}
    return {name: one.name for name, one in targets.items() if one is not None} | found


@lru_cache(1024)
def find_elements(access: KernelAccess) -> Mapping[str, tuple[str, str]]:
    """See `KernelRead.elements`. A pointer that is used otherwise has no line."""
    types, found = SourceTypes(access.program), dict[str, tuple[str, str]]()
    uses, indexed, variables = Counter[str](), Counter[str](), Counter[str]()
    for node in walk_tree(access.function):
        if isinstance(node, c_ast.Decl):
            variables[node.name] += 1
        if isinstance(node, c_ast.ID):
            uses[node.name] += 1
        if isinstance(node, c_ast.ArrayRef) and isinstance(node.name, c_ast.ID):
            indexed[node.name.name] += 1
    moved: dict[str, Any] = {}  # `global float *z = (global float *)((global char *)base + offset)`
    for node in access.function.body.block_items:
        if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.PtrDecl) and node.init:
            origins = set(list_names(node.init)) & access.arguments.keys()
            if len(origins) == 1:
                moved[origins.pop()] = node
    for name, argument in access.arguments.items():
        variable, pointed = name, argument.parameter.type
        if uses[name] == 1 and not indexed[name] and name in moved:
            variable, pointed = moved[name].name, types.read(moved[name].type)
        target = pointed.target
        if target is None or target.kind not in ("integer", "float", "vector") or not target.name:
            continue
        if variables[variable] == 1 and uses[variable] == indexed[variable]:  # nothing hides it
            found[name] = variable, target.name
    return found


def _keep_options(options: str) -> str:
    """Return the options of a fused program: macros and includes are in its text already."""
    kept, words = list[str](), iter(shlex.split(options))
    for word in words:
        if word in ("-D", "-I"):
            next(words, "")
        elif word.startswith(_HARMLESS):
            kept.append(word)
        elif not word.startswith(("-D", "-I")):
            raise UnreadableKernel(f"its program was built with {word}")
    return " ".join(kept)


@lru_cache(64)
def list_macros(device: int) -> frozenset[tuple[str, str | None]]:
    """Return what a device's compiler defines, as far as it is known."""
    told = query_bytes(device, "clGetDeviceInfo", "CL_DEVICE_EXTENSIONS") or b""
    extensions = decode_text(told).split()
    numbers = {f"CL_VERSION_{n // 100}_{n // 10 % 10}": str(n) for n in (100, 110, 120)}
    found: Mapping[str, str | None] = {
        **dict.fromkeys(extensions, "1"),
        **numbers,
        "__ENDIAN_LITTLE__": "1",
    }
    return frozenset(found.items())
