"""Searches for OpenCL drivers: the steps of the search, and what each environment variable does.

`find()` takes the steps of `STEPS` in order. A step is a small function that yields candidates,
places that it searched, and refusals. It is skipped if a set variable replaces it. No library is
opened here.

`VARIABLES` has every variable that the Khronos loader, ocl-icd or PyOpenCL's own loader knows.
`explain_variables()` says what the set variables did.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping

from ..loader.base import search
from ..loader.base.frozen_value import Value
from ..loader.base.manifests import check_library, search_directory, search_manifest
from ..loader.base.search import (
    Candidate,
    Finding,
    Place,
    Refusal,
    SearchResult,
    Variable,
    VariableInUse,
    collect,
    filter_environ,
    split_list,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

#: Where cl_khr_icd has drivers register on Linux.
SYSTEM_VENDORS: Final = "/etc/OpenCL/vendors"

#: A loader's real name: `libOpenCL.so.1.0.0`, or in a repaired wheel `libOpenCL-5519dec5.so.1.0.0`.
#: `libOpenCL_adreno.so` is a driver.
_LOADER_NAME: Final = r"libOpenCL(-[0-9a-f]+)?\.so(\..*)?"

_KHRONOS, _OCL_ICD, _PYOPENCL = "Khronos loader", "ocl-icd", "PyOpenCL's wheels"


VARIABLES: Final = (
    Variable(
        "OCL_ICD_FILENAMES",
        (_KHRONOS,),
        "`:`-list of driver libraries to open before all others",
        True,
        "these libraries come first, before every other place",
    ),
    Variable(
        "OCL_ICD_VENDORS",
        (_KHRONOS, _OCL_ICD, _PYOPENCL),
        "what to use in place of /etc/OpenCL/vendors",
        True,
        "a directory, an .icd file, a library or a `:`-list of these "
        "replaces every place but OCL_ICD_FILENAMES",
    ),
    Variable(
        "OPENCL_VENDOR_PATH",
        (_OCL_ICD, _PYOPENCL),
        "directory to use in place of /etc/OpenCL/vendors",
        True,
        "this directory replaces /etc/OpenCL/vendors, and nothing else",
    ),
    Variable(
        "PYOPENCL_HOME",
        (_PYOPENCL,),
        "PyOpenCL's package; the .icd files in its .libs are read last (`import pyopencl` sets it)",
        True,
        "the .icd files in its .libs are read after those of the installed PoCL wheel",
    ),
    Variable(
        "OCL_ICD_PLATFORM_SORT",
        (_OCL_ICD, _PYOPENCL),
        "`devices` puts platforms with GPUs first, then CPUs; `none` keeps the order",
        True,
        "orders the platforms when they are listed, after the search",
    ),
    Variable(
        "OCL_ICD_DEFAULT_PLATFORM",
        (_OCL_ICD, _PYOPENCL),
        "index of the platform that stands for a NULL platform",
        True,
        "chooses the platform when none is named, after the search",
    ),
    Variable(
        "OCL_ICD_ASSUME_ICD_EXTENSION",
        (_OCL_ICD, _PYOPENCL),
        "accept platforms that do not list cl_khr_icd",
        True,
        "accepts such platforms when their driver is opened, after the search",
    ),
    Variable(
        "OPENCL_LAYERS",
        (_KHRONOS, _OCL_ICD, _PYOPENCL),
        "`:`-list of layer libraries, the last one outermost",
        False,
        "fairlead's libOpenCL.so.1 loads them; fairlead's own calls go past them",
    ),
    Variable(
        "OPENCL_LAYER_PATH",
        (_KHRONOS, _OCL_ICD),
        "directory of .lay files that name layers",
        False,
        "fairlead's libOpenCL.so.1 loads them; fairlead's own calls go past them",
    ),
    Variable(
        "OCL_ICD_ENABLE_TRACE",
        (_KHRONOS,),
        "print what the loader does while it loads drivers",
        False,
        "fairlead's libOpenCL.so.1 prints that; `fairlead doctor` has the reasons",
    ),
    Variable(
        "OCL_ICD_DEBUG",
        (_OCL_ICD, _PYOPENCL),
        "bit mask of messages, in a loader built for debugging",
        False,
        "`fairlead doctor` prints what was found and what was refused",
    ),
    Variable(
        "OCL_ICD_FORCE_LEGACY_TERMINATION",
        (_KHRONOS,),
        "start layers with clInitLayer and unload nothing at exit",
        False,
        "fairlead's libOpenCL.so.1 ends no layer then; fairlead unloads no driver at exit",
    ),
    Variable(
        "OCL_ICD_DISABLE_DYNAMIC_LIBRARY_UNLOADING",
        (_KHRONOS,),
        "keep drivers open at exit",
        False,
        "fairlead unloads no driver at exit",
    ),
)


class DriverSearch(Value):
    """The inputs of each step of the search.

    Attributes:
        environ: the environment, empty in a set-uid process.
        prefix: the Python environment to search; None is the running one.
    """

    environ: Mapping[str, str]
    vendors: str
    prefix: str | None


class Step(Value):
    """A step of the search.

    Attributes:
        name: its name. A step with a variable's name is taken only if the variable is not empty.
        run: yields what it finds.
        replaced_by: the variables that replace it if they are not empty.
    """

    name: str
    run: Callable[[DriverSearch, str], Iterator[Finding]]
    replaced_by: tuple[str, ...] = ()


def find(
    environ: Mapping[str, str] | None = None,
    *,
    vendors: str = SYSTEM_VENDORS,
    prefix: str | None = None,
) -> SearchResult:
    """Search for the libraries of OpenCL drivers, and open none.

    Args:
        environ: the environment, `os.environ` by default. A set-uid or set-gid process ignores it.
        prefix: the Python environment whose `etc/OpenCL/vendors` is read; by default the running
            one.
    """
    return collect(_refuse_loaders(_walk(DriverSearch(filter_environ(environ), vendors, prefix))))


def explain_variables(environ: Mapping[str, str] | None = None) -> tuple[VariableInUse, ...]:
    """What each variable did that is set in the environment, in the order of `VARIABLES`."""
    return search.explain_variables(VARIABLES, _explain_effect, environ)


def _explain_effect(variable: Variable, trusted: Mapping[str, str]) -> str:
    """Why a variable that is set does not do what it is for, "" if it does."""
    replaced_by = {step.name: step.replaced_by for step in STEPS}
    winner = _find_winner(replaced_by.get(variable.name, ()), trusted)
    return f"no effect: {winner} is set and replaces it" if winner else ""


def find_shipped_vendors() -> str:
    """The directory of manifests that ships with fairlead."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return os.path.join(root, "vendors_d")


def _walk(request: DriverSearch) -> Iterator[Finding]:
    """The findings of all steps, and a place for each step that was skipped."""
    variables = {variable.name for variable in VARIABLES}
    for step in STEPS:
        if step.name in variables and not request.environ.get(step.name):
            continue
        winner = _find_winner(step.replaced_by, request.environ)
        if winner:
            yield Place(step.name, step.name, f"not searched: {winner} is set and replaces it")
        else:
            yield from step.run(request, step.name)


def _find_winner(replaced_by: Iterable[str], environ: Mapping[str, str]) -> str | None:
    """The variable that replaces a step, None if none of them is set."""
    return next((name for name in replaced_by if environ.get(name)), None)


def _is_loader(name: str) -> bool:
    import re  # it takes milliseconds, and few drivers are called so

    return bool(re.fullmatch(_LOADER_NAME, name))


def _refuse_loaders(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Refuse libOpenCL.so.1 as a driver: it would call itself without end.

    The name of the real file tells; that of a link does not.
    """
    for finding in findings:
        if isinstance(finding, Candidate):
            library = finding.library
            name = os.path.basename(os.path.realpath(library) if "/" in library else library)
            if name.startswith("libOpenCL") and _is_loader(name):
                reason = f"{library} is an OpenCL loader ({name}), not a driver"
                finding = Refusal(
                    finding.manifest or library,
                    reason,
                    "name the driver's own library instead",
                    finding.found_via,
                )
        yield finding


def _find_by_filenames(request: DriverSearch, name: str) -> Iterator[Finding]:
    """OCL_ICD_FILENAMES names libraries only, as in the Khronos loader."""
    for element in split_list(name, request.environ[name]):
        if isinstance(element, Refusal):
            yield element
        elif element.endswith(".icd"):
            yield Refusal(
                element,
                "is a manifest, and this variable names libraries",
                "name it in OCL_ICD_VENDORS",
                name,
            )
        else:
            yield check_library(_make_absolute(element), name)


def _find_by_vendors_variable(request: DriverSearch, name: str) -> Iterator[Finding]:
    """OCL_ICD_VENDORS in the meaning of every loader, and as a list."""
    for element in split_list(name, request.environ[name]):
        if isinstance(element, Refusal):
            yield element
        elif os.path.isdir(element):
            yield from search_directory(element, name)
        elif element.endswith(".icd"):
            yield from _read_named_manifest(element, request, name)
        elif (
            "/" in element
            and not os.path.lexists(element)
            and ".so" not in os.path.basename(element)
        ):
            yield Refusal(
                element,
                "does not exist",
                f"unset {name}, or correct it: a directory, an .icd file or a library",
                name,
            )
        else:
            yield check_library(_make_absolute(element), name)


def _read_named_manifest(element: str, request: DriverSearch, name: str) -> Iterator[Finding]:
    """An .icd file; a bare name means one of the vendor directory first, as in ocl-icd."""
    path = os.path.abspath(element)
    if "/" not in element:
        vendors = request.environ.get("OPENCL_VENDOR_PATH") or request.vendors
        in_vendors = os.path.join(os.path.abspath(vendors), element)
        path = in_vendors if os.path.lexists(in_vendors) or not os.path.lexists(path) else path
    yield from search_manifest(path, name)


def _find_by_vendor_path(request: DriverSearch, name: str) -> Iterator[Finding]:
    """OPENCL_VENDOR_PATH: one directory."""
    directory = os.path.abspath(request.environ[name])
    if not os.path.exists(directory):
        yield Refusal(
            directory,
            "does not exist",
            f"unset {name} to use {request.vendors}, or correct it",
            name,
        )
    yield from search_directory(directory, name)


def _find_in_system(request: DriverSearch, name: str) -> Iterator[Finding]:
    return search_directory(request.vendors, name)


def _find_in_python_prefix(request: DriverSearch, name: str) -> Iterator[Finding]:
    """Yield drivers of the Python environment, and of the base environment of a virtual one.

    The active environment of conda comes last. Its Python may be another one.
    """
    others = () if request.prefix else (sys.base_prefix, request.environ.get("CONDA_PREFIX"))
    first, *more = dict.fromkeys(
        os.path.join(root, "etc/OpenCL/vendors")
        for root in (request.prefix or sys.prefix, *others)
        if root and os.path.isabs(root)
    )
    yield from search_directory(first, name, _list_site_packages())
    for directory in more:
        if os.path.isdir(directory):
            yield from search_directory(directory, name, _list_site_packages())


def find_pyopencl_folders() -> tuple[str, ...]:
    """Return the folders of Python's package `pyopencl`, without an import. () if it has none."""
    try:
        spec = importlib.util.find_spec("pyopencl")
    except (
        ImportError,
        ValueError,
    ):  # somebody else's import hook, or a module put into sys.modules by hand
        return ()
    return tuple((spec.submodule_search_locations if spec else None) or ())


def _find_pocl_wheel(request: DriverSearch, name: str) -> Iterator[Finding]:
    """Yield the manifest that PoCL's wheel (pocl-binary-distribution) puts into PyOpenCL's package.

    It is meant for the loader inside PyOpenCL's wheel. Without PyOpenCL the directory exists
    nevertheless, and Python takes it for a namespace package.
    """
    packages = find_pyopencl_folders()
    if not packages:
        yield Place(
            "pyopencl/.libs",
            name,
            "does not exist: this Python has neither PyOpenCL nor PoCL's wheel",
        )
    for package in packages:
        yield from search_directory(os.path.join(package, ".libs"), name)


def _find_in_pyopencl_home(request: DriverSearch, name: str) -> Iterator[Finding]:
    """Yield nothing of the package that was searched already: `import pyopencl` sets that."""
    home = request.environ[name]
    if os.path.realpath(home) not in map(os.path.realpath, find_pyopencl_folders()):
        yield from search_directory(os.path.join(home, ".libs"), name)


def _find_shipped(request: DriverSearch, name: str) -> Iterator[Finding]:
    for finding in search_directory(find_shipped_vendors(), name, _list_site_packages()):
        # Nobody needs the packages of all manifests: to install one that is missing cures nothing.
        yield (
            Refusal(finding.what, finding.reason, found_via=name)
            if isinstance(finding, Refusal)
            else finding
        )


#: The steps that find what pip has installed.
OF_PYTHON: Final = ("Python prefix", "PoCL wheel", "vendors.d")
#: The order of the search, as vendors.d/README.md explains it to users.
STEPS: Final = (
    Step("OCL_ICD_FILENAMES", _find_by_filenames),
    Step("OCL_ICD_VENDORS", _find_by_vendors_variable),
    Step("OPENCL_VENDOR_PATH", _find_by_vendor_path, ("OCL_ICD_VENDORS",)),
    Step("/etc/OpenCL/vendors", _find_in_system, ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH")),
    Step("Python prefix", _find_in_python_prefix, ("OCL_ICD_VENDORS",)),
    Step("PoCL wheel", _find_pocl_wheel, ("OCL_ICD_VENDORS",)),
    Step("PYOPENCL_HOME", _find_in_pyopencl_home, ("OCL_ICD_VENDORS",)),
    Step("vendors.d", _find_shipped, ("OCL_ICD_VENDORS",)),
)


def _list_site_packages() -> list[str]:
    """The directories on Python's path that pip installs into."""
    return [
        entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")
    ]


def _make_absolute(library: str) -> str:
    """A path relative to the current directory, as dlopen takes it; a bare soname stays one."""
    return os.path.abspath(library) if "/" in library else library
