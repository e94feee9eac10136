"""Programs in a file: what a driver and PyOpenCL tell of them, and how they are built again."""

from __future__ import annotations

import re
import warnings
from typing import Any, Final

from ..captured_graphs.pyopencl_client import find_sources
from ..icd._native import ffi
from ..icd.built_source import BuiltSource
from ..icd.calls import query_bytes
from ..icd.errors import OpenCLError
from ..icd.program_binaries import query_binaries
from .errors import make_save_error
from .queries import decode, identify_device, query_data, query_text

_KEEP_PROGRAMS: Final = "keep the pyopencl.Program of each kernel alive until the graph is saved"
_COMMENT: Final = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
#: What a macro changes in PyOpenCL's scans and sorts: they only print more.
_PRINTING: Final = re.compile(r"#ifdef\s+\w*DEBUG\s+#define\s+\w+_printf\(\w+\)\s+printf \w+")
_DIRECTIVE: Final = re.compile(
    r"^[ \t]*#[ \t]*(define|include|ifdef|ifndef|if|elif)\b(.*)$", re.MULTILINE
)
_NAME: Final = re.compile(r"\b[A-Za-z_]\w*")
_OWN_HEADER: Final = re.compile(r"<pyopencl-[\w/-]+\.(?:h|cl)>")
#: What compilers define, whatever the options are.
_PREDEFINED: Final = re.compile(
    r"defined|M_[A-Z\d_]+|cl_\w+|CL_VERSION_\w+|__opencl_c_\w+|__OPENCL_\w+__|__ENDIAN_LITTLE__"
    r"|__IMAGE_SUPPORT__|__EMBEDDED_PROFILE__"
)


def make_program_row(
    program: int, device: int, number: int, binaries: bool
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return a program as a file has it, and the members that it refers to.

    Args:
        program, device: handles.
        number: the number of the program in the file.
        binaries: whether the binary of the device is wanted, too.

    Raises:
        GraphFileError: its source, IL and binary are unknown, or its build options.
    """
    routine = "clGetProgramInfo"
    source = query_text(program, routine, "CL_PROGRAM_SOURCE")
    source = source or find_sources([program]).get(program, "")
    record: dict[str, Any] = {"options": _find_options(program, device, source)}
    members: dict[str, bytes] = {}
    il = query_data(program, routine, "CL_PROGRAM_IL")
    if source.strip():
        record["source"] = f"programs/{number}.cl"
        members[record["source"]] = source.encode()
    elif il:
        record["il"] = f"programs/{number}.spv"
        members[record["il"]] = il
    if binaries or not members:
        binary = _get_binary(program, device)
        if not binary and not members:
            raise make_save_error(
                "the driver tells neither source nor IL nor binary of a program", _KEEP_PROGRAMS
            )
        if binary:
            name = f"programs/{number}.bin"
            record["binaries"] = [{**identify_device(device), "file": name}]
            members[name] = binary
    return record, members


def _find_options(program: int, device: int, source: str) -> str:
    """Return the build options of a program.

    Intel's driver does not tell those of a program that only its kernels keep, as the kernels of
    pyopencl.array do. Then a program has none, if no macro could change what its source says.
    """
    answer = query_bytes(program, "clGetProgramBuildInfo", "CL_PROGRAM_BUILD_OPTIONS", device)
    if answer is not None:
        return strip_includes(decode(answer))
    if isinstance(source, BuiltSource):
        return strip_includes(source.options)
    why = _find_need_of_options(source, device)
    if not why:
        return ""
    raise make_save_error(
        "the driver does not tell the build options of a program that only its kernels keep, "
        f"and {why}",
        _KEEP_PROGRAMS,
    )


def _find_need_of_options(source: str, device: int) -> str:
    """Return how build options may change what a source computes, "" if they cannot.

    Options that only change rounding do not count.
    """
    import pyopencl as cl

    known: set[str] = set()
    text = _PRINTING.sub(" ", _COMMENT.sub(" ", source.replace("\\\n", " ")))
    for directive, rest in _DIRECTIVE.findall(text):
        if directive == "include":
            if not _OWN_HEADER.fullmatch(rest.strip()):
                return f"its source includes {rest.strip()}"
            continue
        names = _NAME.findall(rest)
        if directive == "define":
            known.update(names[:1])
            continue
        asked = [one for one in names if one not in known and not _PREDEFINED.fullmatch(one)]
        if asked:
            return f"its source asks for the macro {asked[0]}"
    target = cl.Device.from_int_ptr(device)
    try:
        build_program(cl.Program(cl.Context([target]), source), "", target)
    except cl.Error:
        return "its source cannot be built without options"
    return ""


def build_program(program: Any, options: str, device: Any) -> Any:
    """Build a pyopencl.Program for a device, and return it.

    Args:
        options: what the driver gets. Words are joined as they were divided, with all blanks.
        device: the pyopencl.Device.

    Raises:
        pyopencl.Error: the driver refuses it.
    """
    import pyopencl as cl

    words = options.split(" ") if options else []
    with warnings.catch_warnings():  # the first build has shown what the compiler prints
        warnings.simplefilter("ignore", cl.CompilerWarning)
        try:
            return program.build(words, devices=[device])
        except KeyError:  # PyOpenCL's cache looks for a variable after any error of its own
            return program.build(words, devices=[device], cache_dir=False)


def strip_includes(options: str) -> str:
    """Return build options without PyOpenCL's own folder, which it adds to every build.

    The rest stays as it is. Drivers split options by rules of their own, and no shell's.
    """
    from pyopencl import _find_pyopencl_include_path

    own = re.escape(_find_pyopencl_include_path())
    return re.sub(rf"(?<!\S)-I\s*{own}(?!\S)", "", options).strip()


def _get_binary(program: int, device: int) -> bytes:
    routine = "clGetProgramInfo"
    devices = ffi.from_buffer("uintptr_t[]", query_data(program, routine, "CL_PROGRAM_DEVICES"))
    try:
        binaries = dict(zip(devices, query_binaries(program), strict=True))
    except (OpenCLError, ValueError):  # the driver tells no binaries, or not those of all devices
        return b""
    return binaries.get(device, b"")
