"""NVRTC and hipRTC, which compile CUDA C and HIP C++. Both have the same functions."""

from __future__ import annotations

import ctypes
import shlex
from collections.abc import Sequence
from typing import Any, Final, NamedTuple


class RuntimeCompilerNames(NamedTuple):
    """Where one of the compilers is.

    Attributes:
        libraries: its libraries, the newest first.
        prefix: how its functions begin.
        codes: what it can make, as the names of its functions have it. The usual one is first.
    """

    libraries: tuple[str, ...]
    prefix: str
    codes: tuple[str, ...]


NVRTC: Final = RuntimeCompilerNames(
    ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"), "nvrtc", ("PTX", "CUBIN")
)
HIPRTC: Final = RuntimeCompilerNames(
    ("libhiprtc.so.7", "libhiprtc.so.6", "libamdhip64.so.6", "libamdhip64.so.5"),
    "hiprtc",
    ("Code",),
)

_pointer, _int = ctypes.c_void_p, ctypes.c_int
#: The functions that are used, and their parameters. `{}` is each of what the compiler can make.
_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "Version": (_pointer, _pointer),
    "CreateProgram": (*(_pointer, ctypes.c_char_p, ctypes.c_char_p), *(_int, _pointer, _pointer)),
    "CompileProgram": (_pointer, _int, _pointer),
    "DestroyProgram": (_pointer,),
    "GetProgramLogSize": (_pointer, _pointer),
    "GetProgramLog": (_pointer, _pointer),
    "Get{}Size": (_pointer, _pointer),
    "Get{}": (_pointer, _pointer),
    "GetErrorString": (_int,),
}


class RuntimeCompilerError(Exception):
    """A program was not compiled. The text is the compiler's log."""


class RuntimeCompiler:
    """An open compiler.

    Attributes:
        library: see above.
        version: its version, major and minor.

    Raises:
        OSError: it cannot be opened, or lacks a function.
    """

    def __init__(self, names: RuntimeCompilerNames, library: str) -> None:
        opened, self.library = ctypes.CDLL(library), library
        self._functions: dict[str, Any] = {}
        for pattern, parameters in _FUNCTIONS.items():
            for name in {pattern.format(code) for code in names.codes}:
                try:
                    function = getattr(opened, names.prefix + name)
                except AttributeError as error:
                    raise OSError(str(error)) from error
                function.argtypes = parameters
                self._functions[name] = function
        self._functions["GetErrorString"].restype = ctypes.c_char_p
        self.names = names
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._functions["Version"](ctypes.byref(major), ctypes.byref(minor))
        self.version = major.value, minor.value

    def compile(self, source: bytes, options: str | Sequence[str], code: str = "") -> bytes:
        """Return what a program becomes: PTX of CUDA C, a code object of HIP C++.

        Args:
            options: the compiler's, as one text or several.
            code: which one of `names.codes`; the usual one if it is empty.

        Raises:
            RuntimeCompilerError: the program is refused.
        """
        words = split_options(options) if isinstance(options, str) else options
        program = ctypes.c_void_p()
        given = ctypes.byref(program), source, b"program", 0, None, None
        self._check("CreateProgram", *given)
        try:
            array = (ctypes.c_char_p * max(len(words), 1))(*(word.encode() for word in words))
            if self._functions["CompileProgram"](program, len(words), array):
                log = self._read_bytes("ProgramLog", program)
                raise RuntimeCompilerError(log.rstrip(b"\0\n").decode(errors="replace"))
            return self._read_bytes(code or self.names.codes[0], program)
        finally:
            self._functions["DestroyProgram"](ctypes.byref(program))

    def _read_bytes(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._check(f"Get{what}Size", program, ctypes.byref(size))
        made = ctypes.create_string_buffer(size.value)
        self._check(f"Get{what}", program, made)
        return made.raw

    def _check(self, name: str, *arguments: Any) -> None:
        code = self._functions[name](*arguments)
        if code:
            text = self._functions["GetErrorString"](code).decode(errors="replace")
            raise RuntimeCompilerError(f"{self.names.prefix}{name}: {text}")


def split_options(options: str) -> list[str]:
    """Return options as words. Raises RuntimeCompilerError."""
    try:
        return shlex.split(options)
    except ValueError as error:
        raise RuntimeCompilerError(f"options: {error}") from error


def open_compiler(names: RuntimeCompilerNames) -> RuntimeCompiler | None:
    """Return a compiler; None if none of its libraries can be opened."""
    for library in names.libraries:
        try:
            return RuntimeCompiler(names, library)
        except OSError:
            continue
    return None
