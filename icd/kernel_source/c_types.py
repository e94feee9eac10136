"""The types of OpenCL C: their sizes in bytes, and what pointers lead to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from pycparser import c_ast

from .constants import calculate
from .errors import UnreadableKernel
from .parsing import ParsedProgram, write_opencl
from .syntax import line_of, walk_tree


@dataclass(frozen=True)
class CType:
    """A type.

    Attributes:
        kind: `integer`, `float`, `vector`, `struct`, `array`, `pointer` or `void`.
        size: In bytes; 0 if it is not known.
        alignment: In bytes.
        signed: Whether an integer has a sign.
        target: What a pointer leads to, and what an array has.
        space: `global`, `local`, `constant` or `private`: where what a pointer leads to is.
        name: As the source writes it, if that is one word.
        members: Of a struct or union: names, first bytes and types. "" has members without names.
    """

    kind: str
    size: int = 0
    alignment: int = 1
    signed: bool = False
    target: CType | None = None
    space: str = "private"
    name: str = ""
    members: tuple[tuple[str, int, CType], ...] = ()

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest value of an integer."""
        if self.name == "bool":
            return 0, 1
        bits = 8 * self.size
        return (-(1 << bits - 1), (1 << bits - 1) - 1) if self.signed else (0, (1 << bits) - 1)

    @property
    def scalar(self) -> CType:
        """What a vector consists of, and every other type itself."""
        return self.target if self.kind == "vector" and self.target else self

    def find(self, name: str) -> tuple[int | None, CType | None]:
        """Return the first byte and the type of a member; the byte is None if it is not known."""
        for member, offset, type_ in self.members:
            inner = (offset, type_) if member == name else (0, None)
            if not member:
                within, found = type_.find(name)
                inner = (offset + (within or 0), found)
            if inner[1]:
                return inner[0] if self.size else None, inner[1]
        return None, None


def _integer(name: str, size: int) -> CType:
    return CType("integer", size, size, signed=name[0] != "u", name=name)


_INTEGERS: Final = {"char": 1, "short": 2, "int": 4, "long": 8}
_SCALARS: Final = {
    **{name: _integer(name, size) for name, size in _INTEGERS.items()},
    **{f"u{name}": _integer(f"u{name}", size) for name, size in _INTEGERS.items()},
    **{name: CType("integer", 8, 8, name=name) for name in ("size_t", "uintptr_t")},
    **{name: CType("integer", 8, 8, signed=True, name=name) for name in ("ptrdiff_t", "intptr_t")},
    **{name: CType("integer", 1, 1, name="bool") for name in ("bool", "_Bool")},
    "half": CType("float", 2, 2, name="half"),
    "float": CType("float", 4, 4, name="float"),
    "double": CType("float", 8, 8, name="double"),
    "void": CType("void", name="void"),
}
INT, LONG, SIZE = _SCALARS["int"], _SCALARS["long"], _SCALARS["size_t"]
UINT, ULONG = _SCALARS["uint"], _SCALARS["ulong"]


class SourceTypes:
    """The types of a program."""

    def __init__(self, program: ParsedProgram) -> None:
        self._program = program
        self._open: list[str] = []  # structs that are being read
        self._named = dict[str, Any]()
        self._structs = dict[str, Any]()
        for one in (node for part in program.declarations for node in walk_tree(part)):
            if isinstance(one, c_ast.Typedef):
                self._learn(self._named, one)
            elif isinstance(one, c_ast.Struct | c_ast.Union) and one.name and one.decls:
                self._learn(self._structs, one)

    def _learn(self, known: dict[str, Any], node: Any) -> None:
        first = known.setdefault(node.name, node)
        if first is not node and write_opencl(first) != write_opencl(node):  # scopes have their own
            raise UnreadableKernel(f"{node.name} is two types", line_of(node))

    def read(self, node: c_ast.Node | None, quals: list[str] | None = None) -> CType:
        """Return the type that a part of a syntax tree writes."""
        if isinstance(node, c_ast.TypeDecl | c_ast.Typename | c_ast.Decl):
            own = [*(quals or []), *(getattr(node, "quals", None) or [])]
            return self.read(node.type, own)
        if isinstance(node, c_ast.PtrDecl):
            target = self.read(node.type)
            return CType("pointer", 8, 8, target=target, space=_space(node.type))
        if isinstance(node, c_ast.ArrayDecl):
            target = self.read(node.type)
            try:
                size = target.size * calculate(node.dim)
            except UnreadableKernel:
                size = 0
            return CType("array", size, target.alignment, target=target, space=_space(node.type))
        if isinstance(node, c_ast.Struct | c_ast.Union):
            return self._aggregate(node)
        if isinstance(node, c_ast.Enum):
            return UINT
        if isinstance(node, c_ast.IdentifierType):
            return self._word(node.names)
        return CType("void")

    def read_name(self, name: str) -> CType:
        """Return the type of a name."""
        return self._word([name])

    def _word(self, names: list[str]) -> CType:
        name = names[0]
        if len(names) == 1 and name in self._named:
            found = self.read(self._named[name].type)
            return found if found.kind in ("integer", "float") else replace(found, name=name)
        words = [word for word in names if word not in ("unsigned", "signed")]
        base = next((word for word in ("char", "short", "long") if word in words), "")
        base = base or (words[-1] if words else "int")
        name = f"u{base}" if "unsigned" in names else base
        if name in _SCALARS:
            return _SCALARS[name]
        element = _SCALARS.get(name.rstrip("0123456789"))
        if element is None:
            return CType("void", name=name)
        width = int(name[len(element.name) :])
        size = element.size * (4 if width == 3 else width)
        return CType("vector", size, size, target=element, name=name)

    def _aggregate(self, node: c_ast.Struct | c_ast.Union) -> CType:
        declared = node.decls
        if declared is None and node.name in self._structs:
            declared = self._structs[node.name].decls
        if not declared or node.name in self._open:
            return CType("struct", name=node.name or "")
        if node.name:
            self._open.append(node.name)
        raised = self._program.alignment
        end, alignment, known = 0, 1, raised >= 0
        members: list[tuple[str, int, CType]] = []
        for member in declared:
            of = self.read(member.type)
            start = -(-end // of.alignment) * of.alignment if isinstance(node, c_ast.Struct) else 0
            # where alignments are raised at most to what a struct has anyway, nothing moves
            moves = of.kind == "struct" and start % max(1, raised)
            known = known and bool(of.size) and not moves
            known = known and getattr(member, "bitsize", None) is None
            alignment = max(alignment, of.alignment)
            members.append((member.name or "", start, of))
            end = max(end, start + of.size)
        if node.name:
            self._open.pop()
        size = -(-end // alignment) * alignment
        known = known and not size % max(1, raised)
        return CType(
            "struct", size if known else 0, alignment, name=node.name or "", members=tuple(members)
        )


def _space(node: c_ast.Node | None) -> str:
    """Return the address space that the declaration of a pointer's target names."""
    while isinstance(node, c_ast.ArrayDecl):
        node = node.type
    quals = getattr(node, "quals", None) or []
    if "_Atomic" in quals:
        return "constant" if "restrict" in quals else "global"
    return "local" if "restrict" in quals else "private"
