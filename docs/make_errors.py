"""Writes docs/errors.md, the catalogue of errors: `python docs/make_errors.py > docs/errors.md`.

The classes come from the package, their meanings from their docstrings, and the codes from the ABI
data.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator

import fairlead
from fairlead.icd.abi import OPENCL
from fairlead.icd.errors import OpenCLError
from fairlead.loader.base.abi import Api
from fairlead.loader.base.errors import CodeError, FairleadError
from fairlead.loader.cuda.abi import CUDA, CudaError
from fairlead.loader.hip.abi import HIP, HipError
from fairlead.loader.pi.abi import PI, PIError
from fairlead.loader.ur.abi import UR, URError
from fairlead.loader.ze.abi import ZE, LevelZeroError
from fairlead.runtime.errors import Errc

BEGIN = """\
# Errors

<!-- Printed by `python docs/make_errors.py`; a test compares it. -->

Every exception of fairlead derives from `fairlead.FairleadError`. It has these attributes, and its
text has all of them:

| attribute | meaning |
|---|---|
| `message` | what happened, in plain words |
| `routine` | the C function or the file operation that failed, or "" |
| `code` | the symbolic code, such as `CL_INVALID_OPERATION`, or "" |
| `remedy` | what to do next, or "" |

```text
{example}
```
"""

#: What to do about an exception, where its own `remedy` is not the whole answer.
NEXT = {
    "PlatformNotFoundError": "run `fairlead doctor`; see [no_driver_found.md](no_driver_found.md)",
    "NotFoundError": "read `reasons`; run `fairlead doctor`",
    "LibraryError": "install the libraries that `missing` names",
    "CaptureError": "change the line that `where` names; see [capture.md](capture.md)",
    "GraphFileError": "see `code` and [graph_files.md](graph_files.md#load)",
    "SelectorError": "correct the variable that `code` names, at the character `position`",
    "SYCLError": "see `errc` below",
    "BuildError": "read the build log in the message",
}

#: What each of SYCL's error classes means.
CLASSES = {
    Errc.success: "nothing failed",
    Errc.runtime: "the driver or the adapter failed; `code` is its code",
    Errc.kernel: "a kernel could not be made or found",
    Errc.accessor: "an accessor is used in a way that its mode does not allow",
    Errc.nd_range: "a range has the wrong number of dimensions or does not fit the device",
    Errc.event: "an event cannot be used like this",
    Errc.kernel_argument: "an argument does not fit the kernel's parameter",
    Errc.build: "a program did not compile or link",
    Errc.invalid: "a call or an argument is wrong; the message names it",
    Errc.memory_allocation: "there is not enough memory",
    Errc.platform: "no platform fits",
    Errc.profiling: "the times were not asked for when the queue or the graph was made",
    Errc.feature_not_supported: "the device or its adapter does not have this feature",
    Errc.kernel_not_supported: "the device cannot run this kernel",
    Errc.backend_mismatch: "an object of another backend was given",
}

APIS: tuple[tuple[str, Api, type[CodeError]], ...] = (
    ("OpenCL", OPENCL, OpenCLError),
    ("Unified Runtime", UR, URError),
    ("DPC++ PI", PI, PIError),
    ("CUDA", CUDA, CudaError),
    ("HIP", HIP, HipError),
    ("Level Zero", ZE, LevelZeroError),
)


def exceptions() -> list[type[FairleadError]]:
    """Return every exception class of the package, by module and name."""
    for module in pkgutil.walk_packages(fairlead.__path__, "fairlead."):
        if not re.search(
            r"\.(conformance\.|__main__|preload|native|lib\w*fairlead)|^fairlead\.cuda_sharing$",
            module.name,
        ):
            importlib.import_module(module.name)
    found, open_ = {FairleadError}, [FairleadError]
    while open_:
        for each in open_.pop().__subclasses__():
            if each not in found and re.match(r"fairlead\.(?!conformance\.)", each.__module__):
                found.add(each)
                open_.append(each)
    # The adapters for CUDA and HIP have the classes of their common modules twice.
    named = {(each.__name__, inspect.getdoc(each)): each for each in found}
    return sorted(named.values(), key=lambda each: (len(each.__mro__), each.__name__))


def first_paragraph(each: type) -> str:
    """Return the first paragraph of a class's docstring, in one line."""
    return " ".join((inspect.getdoc(each) or "").split("\n\n")[0].split())


def pages() -> Iterator[str]:
    """Yield the lines of the catalogue."""
    yield BEGIN.format(example=OpenCLError.from_code(-11, "clBuildProgram"))
    yield "## Exceptions\n"
    yield "| exception | base | raised when | next |\n|---|---|---|---|"
    for each in exceptions():
        public = each.__name__ in fairlead.__all__
        name = f"fairlead.{each.__name__}" if public else each.__name__
        bases = ", ".join(f"`{base.__name__}`" for base in each.__bases__)
        todo = NEXT.get(each.__name__, "follow `remedy`")
        yield f"| `{name}` | {bases} | {first_paragraph(each)} | {todo} |"
    yield "\n## SYCL's error classes\n"
    yield "`SYCLError.errc` is one of these (SYCL 2020, section 4.13.2).\n"
    yield "| `errc` | meaning |\n|---|---|"
    yield from (f"| `{errc.name}` | {CLASSES[errc]} |" for errc in Errc)
    for title, api, error in APIS:
        yield f"\n## Codes of {title}\n"
        known = f"`{error.__name__}.value` is the number, `{error.__name__}.code` the name."
        yield "\n".join(textwrap.wrap(known, 100)) + "\n"
        yield "| code | number | meaning | remedy |\n|---|---|---|---|"
        for number, (name, sentence) in api.errors.items():
            yield f"| `{name}` | {number} | {sentence} | {error.remedies.get(name, '')} |"


if __name__ == "__main__":
    print("\n".join(pages()))
