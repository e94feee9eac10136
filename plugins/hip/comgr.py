"""AMD's compiler as a library: libamd_comgr, which every HIP needs itself.

It makes code objects of OpenCL C, and needs no GPU. AMD's own packages have OpenCL's declarations
in the library. Where they are not, the compiler's header `opencl-c-base.h` is looked for on disk.
"""

from __future__ import annotations

import ctypes
import glob
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from ...loader.base.forks import make_lock
from ...loader.base.search import filter_environ
from ..sdk.gpu.runtime_compilers import RuntimeCompilerError, split_options

_ROOTS: Final = "/opt/rocm", "/usr"


def find_rocm_files(*patterns: str) -> Iterator[str]:
    """Yield the files of patterns, those of a pattern from the highest version on.

    Args:
        patterns: paths below the folders, with wildcards.
    """
    for root in filter(None, (filter_environ().get("ROCM_PATH"), *_ROOTS)):
        for pattern in patterns:
            yield from sorted(
                glob.glob(os.path.join(root, pattern)), key=_parse_version, reverse=True
            )


def _parse_version(path: str) -> tuple[tuple[int, ...], str]:
    """Return the numbers in a path, and the path: lib/llvm-15 comes after lib/llvm-9."""
    return tuple(map(int, re.findall(r"\d+", path))), path


#: The library's names, the newest first.
LIBRARIES: Final = "libamd_comgr.so.3", "libamd_comgr.so.2"
#: Where OpenCL's declarations may be.
_HEADER: Final = "lib/llvm*/lib/clang/*/include/opencl-c-base.h"

# The numbers of amd_comgr.h.
_SOURCE, _LOG, _BITCODE, _EXECUTABLE = 1, 5, 6, 8
_OPENCL_2_0: Final = 2
_HEADERS, _COMPILE, _DEVICE_LIBRARIES, _LINK_CODE, _GENERATE, _LINK = 1, 2, 3, 4, 6, 9
#: With these options a compiler finds OpenCL's declarations in its own header.
DECLARATIONS: Final = (
    "-Xclang",
    "-finclude-default-header",
    "-Xclang",
    "-fdeclare-opencl-builtins",
)

#: How bitcode begins.
BITCODE: Final = b"BC\xc0\xde"
#: From bitcode to a code object.
_FROM_BITCODE: Final = (_LINK_CODE, ()), (_GENERATE, ("-O3",)), (_LINK, ())

#: OpenCL's options that choose a library of the device beside the compiler's behaviour.
_LIBRARY_OPTIONS: Final = {
    "-cl-fp32-correctly-rounded-divide-sqrt": "correctly_rounded_sqrt",
    "-cl-denorms-are-zero": "daz_opt",
    "-cl-finite-math-only": "finite_only",
    "-cl-unsafe-math-optimizations": "unsafe_math",
}


class _ComgrHandle(ctypes.Structure):
    _fields_ = (("handle", ctypes.c_uint64),)


_size, _pointer, _int = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
#: The functions that are used, and their parameters. Each returns a status.
_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "create_data": (_int, _pointer),
    "release_data": (_ComgrHandle,),
    "set_data": (_ComgrHandle, _size, ctypes.c_char_p),
    "set_data_name": (_ComgrHandle, ctypes.c_char_p),
    "get_data": (_ComgrHandle, _pointer, _pointer),
    "create_data_set": (_pointer,),
    "destroy_data_set": (_ComgrHandle,),
    "data_set_add": (_ComgrHandle, _ComgrHandle),
    "action_data_count": (_ComgrHandle, _int, _pointer),
    "action_data_get_data": (_ComgrHandle, _int, _size, _pointer),
    "create_action_info": (_pointer,),
    "destroy_action_info": (_ComgrHandle,),
    "action_info_set_language": (_ComgrHandle, _int),
    "action_info_set_isa_name": (_ComgrHandle, ctypes.c_char_p),
    "action_info_set_option_list": (_ComgrHandle, _pointer, _size),
    "action_info_set_logging": (_ComgrHandle, ctypes.c_bool),
    "do_action": (_int, _ComgrHandle, _ComgrHandle, _ComgrHandle),
    "status_string": (_int, _pointer),
}


class ComgrError(RuntimeCompilerError):
    """A program was not compiled. The text is the compiler's log."""


class Comgr:
    """The open library.

    Args:
        library: its name or path.

    Raises:
        OSError: it cannot be opened, or lacks a function.
    """

    def __init__(self, library: str) -> None:
        opened = ctypes.CDLL(library)
        try:
            for name, parameters in _FUNCTIONS.items():
                getattr(opened, f"amd_comgr_{name}").argtypes = parameters
        except AttributeError as error:
            raise OSError(str(error)) from error
        self._library, self.name = opened, library
        self._lock = make_lock()
        self._has_headers = True

    def compile_opencl(self, source: bytes, target: str, options: str = "") -> bytes:
        """Return the code object of a program of OpenCL C.

        Args:
            target: what it is for, such as "amdgcn-amd-amdhsa--gfx90a".
            options: those of clBuildProgram.

        Raises:
            ComgrError: the program is refused.
        """
        return self._compile_either(source, target, options, _FROM_BITCODE)

    def compile_bitcode(self, source: bytes, target: str, options: str = "") -> bytes:
        """Return the bitcode of a program of OpenCL C, which `link` takes.

        Arguments and errors are `compile_opencl`'s.
        """
        return self._compile_either(source, target, options, ())

    def link(self, parts: Sequence[bytes], target: str, options: str = "") -> bytes:
        """Return the code object of bitcode.

        Args:
            options: those of clLinkProgram.

        Raises:
            ComgrError: the parts cannot be linked.
        """
        libraries = _list_libraries(split_options(options))
        with self._lock, self._make_action(target) as action, self._make_owned("data_set") as first:
            for number, part in enumerate(parts):
                self._add(first, _BITCODE, part, f"part{number}.bc")
            return self._run(action, first, ((_DEVICE_LIBRARIES, libraries), *_FROM_BITCODE))

    def _compile_either(
        self, source: bytes, target: str, options: str, then: Sequence[Any]
    ) -> bytes:
        """Compile with the library's own declarations, or with a header."""
        given = split_options(options)
        with self._lock:
            if self._has_headers:
                try:
                    return self._compile(source, target, given, None, then)
                except ComgrError as error:
                    if "opencl-c-base.h" not in str(error):
                        raise
                    self._has_headers = False
            return self._compile(source, target, given, find_header(), then)

    def _compile(
        self,
        source: bytes,
        target: str,
        options: Sequence[str],
        header: str | None,
        then: Sequence[Any],
    ) -> bytes:
        """Compile to bitcode, and take further steps.

        `header` is the folder of OpenCL's declarations, None for the library's own.
        """
        standard = [] if any("-cl-std" in one for one in options) else ["-cl-std=CL2.0"]
        compile_ = ["-O3", *standard, *options]
        if header is not None:
            compile_ += [*DECLARATIONS, *([f"-I{header}"] if header else [])]
        steps = (
            *(((_HEADERS, ()),) if header is None else ()),
            (_COMPILE, compile_),
            *(((_DEVICE_LIBRARIES, _list_libraries(options)), *then) if then else ()),
        )
        with self._make_action(target) as action, self._make_owned("data_set") as first:
            self._add(first, _SOURCE, source, "program.cl")
            return self._run(action, first, steps)

    @contextmanager
    def _make_action(self, target: str) -> Iterator[_ComgrHandle]:
        """Make what describes the steps for a target, for a block. Raises ComgrError."""
        with self._make_owned("action_info") as action:
            self._call("action_info_set_language", action, _OPENCL_2_0)
            self._call("action_info_set_isa_name", action, target.encode())
            self._call("action_info_set_logging", action, True)
            yield action

    def _run(self, action: _ComgrHandle, given: _ComgrHandle, steps: Sequence[Any]) -> bytes:
        """Take the first of some steps, and then the others. Returns what the last one made."""
        if not steps:
            return self._read_contents(given, _EXECUTABLE) or self._read_contents(given, _BITCODE)
        (number, options), *others = steps
        listed = (ctypes.c_char_p * max(len(options), 1))(*(one.encode() for one in options))
        with self._make_owned("data_set") as made:
            self._call("action_info_set_option_list", action, listed, len(options))
            status = self._library.amd_comgr_do_action(number, action, given, made)
            if status:
                log = self._read_contents(made, _LOG).decode(errors="replace").strip("\0\n ")
                raise ComgrError(log or self._describe_status(status))
            return self._run(action, made, others)

    def _add(self, to: _ComgrHandle, kind: int, contents: bytes, name: str) -> None:
        data = _ComgrHandle()
        self._call("create_data", kind, ctypes.byref(data))
        try:
            self._call("set_data", data, len(contents), contents)
            self._call("set_data_name", data, name.encode())
            self._call("data_set_add", to, data)
        finally:
            self._library.amd_comgr_release_data(data)

    def _read_contents(self, of: _ComgrHandle, kind: int) -> bytes:
        """Return all data of a kind in a set, one after the other."""
        count, found = _size(), []
        self._call("action_data_count", of, kind, ctypes.byref(count))
        for index in range(count.value):
            data, size = _ComgrHandle(), _size()
            self._call("action_data_get_data", of, kind, index, ctypes.byref(data))
            try:
                self._call("get_data", data, ctypes.byref(size), None)
                room = ctypes.create_string_buffer(size.value)
                self._call("get_data", data, ctypes.byref(size), room)
            finally:
                self._library.amd_comgr_release_data(data)
            found.append(room.raw)
        return b"".join(found)

    @contextmanager
    def _make_owned(self, kind: str) -> Iterator[_ComgrHandle]:
        """Make an object for a block: "action_info" or "data_set"."""
        made = _ComgrHandle()
        self._call(f"create_{kind}", ctypes.byref(made))
        try:
            yield made
        finally:
            getattr(self._library, f"amd_comgr_destroy_{kind}")(made)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, f"amd_comgr_{name}")(*arguments)
        if status:
            raise ComgrError(f"amd_comgr_{name}: {self._describe_status(status)}")

    def _describe_status(self, status: int) -> str:
        text = ctypes.c_char_p()
        self._library.amd_comgr_status_string(status, ctypes.byref(text))
        return (text.value or b"an unknown error").decode(errors="replace")


def _list_libraries(options: Sequence[str]) -> list[str]:
    """Return the libraries of the device that options choose."""
    return [name for option, name in _LIBRARY_OPTIONS.items() if option in options]


def find_header() -> str:
    """Return the folder of `opencl-c-base.h`, "" if there is none."""
    return os.path.dirname(next(find_rocm_files(_HEADER), ""))


@cache
def open_comgr() -> Comgr | None:
    """Return the library, opened once; None if there is none."""
    for name in LIBRARIES:
        try:
            return Comgr(name)
        except OSError:
            continue
    return None
