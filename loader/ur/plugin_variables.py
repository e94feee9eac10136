"""The environment variables that affect the search for adapters and plugins.

`VARIABLES` lists all of them. `explain_variables()` says what each one that is set did.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..base import search
from ..base.search import Refusal, Variable, VariableInUse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_UR_LOADER, _LIBSYCL, _FAIRLEAD = "Unified Runtime loader", "DPC++ runtime", "fairlead"


FORCE_LOAD: Final = "UR_ADAPTERS_FORCE_LOAD"
SEARCH_PATH: Final = "UR_ADAPTERS_SEARCH_PATH"
PRELOAD_FILTER: Final = "UR_LOADER_PRELOAD_FILTER"
DEEP_BIND: Final = "UR_ADAPTERS_DEEP_BIND"
PI_CONFIG: Final = "SYCL_PI_CONFIG"
LIBRARY_PATH: Final = "LD_LIBRARY_PATH"


#: The device selectors, the one with the highest precedence first.
SELECTORS: Final = ("ONEAPI_DEVICE_SELECTOR", "SYCL_DEVICE_FILTER", "SYCL_BE")


#: SYCL_OVERRIDE_PI_* to the backend whose plugin it replaces. ROCM is the older name of HIP.
OVERRIDES: Final = {
    "SYCL_OVERRIDE_PI_OPENCL": "opencl",
    "SYCL_OVERRIDE_PI_LEVEL_ZERO": "level_zero",
    "SYCL_OVERRIDE_PI_CUDA": "cuda",
    "SYCL_OVERRIDE_PI_HIP": "hip",
    "SYCL_OVERRIDE_PI_ROCM": "hip",
}


VARIABLES: Final = (
    Variable(
        FORCE_LOAD,
        (_UR_LOADER,),
        "`,`-list of adapters to open in place of all others; quote a path that holds : or ;",
        True,
        "only these adapters are used; nothing else is searched, and no device selector filters "
        "them",
    ),
    Variable(
        SEARCH_PATH,
        (_UR_LOADER,),
        "`,`-list of directories to search for adapters first; quote one that holds : or ;",
        True,
        "these directories come before the Python environment, LD_LIBRARY_PATH and the system",
        (FORCE_LOAD,),
    ),
    Variable(
        PRELOAD_FILTER,
        (_UR_LOADER,),
        "0 opens adapters of every backend, whatever the device selector says",
        True,
        "1 is the default; any other value opens adapters and plugins of every backend",
        (FORCE_LOAD,),
    ),
    Variable(
        DEEP_BIND,
        (_UR_LOADER,),
        "1 opens adapters with RTLD_DEEPBIND",
        True,
        "1 opens adapters with RTLD_DEEPBIND: they prefer their own symbols to those of the "
        "process",
    ),
    Variable(
        "UR_ENABLE_LOADER_INTERCEPT",
        (_UR_LOADER,),
        "1 sends calls through the loader's own table even with a single adapter",
        False,
        "fairlead calls each adapter's own table directly",
    ),
    Variable(
        PI_CONFIG,
        (_FAIRLEAD, "DPC++ design"),
        "file with the plugins' names",
        True,
        "the plugins of this file replace those of vendors.d/plugins.conf",
    ),
    *(
        Variable(
            name,
            (_FAIRLEAD, "DPC++ of 2021"),
            f"library to open in place of the {backend} plugin",
            True,
            f"this library takes the place of the {backend} plugin",
            ("SYCL_OVERRIDE_PI_HIP",) if name.endswith("ROCM") else (),
        )
        for name, backend in OVERRIDES.items()
    ),
    Variable(
        LIBRARY_PATH,
        ("ld.so",),
        "`:`-list of directories to search for libraries",
        True,
        "searched for adapters and plugins after the Python environment and the folders of "
        "libur_loader.so and libsycl.so",
    ),
    Variable(
        "ONEAPI_DEVICE_SELECTOR",
        (_UR_LOADER, _LIBSYCL),
        "which devices may be used",
        True,
        "an adapter or plugin none of whose devices it can select is not opened, unless "
        f"{PRELOAD_FILTER}=0",
    ),
)


def explain_variables(environ: Mapping[str, str] | None = None) -> tuple[VariableInUse, ...]:
    """Return what each of `VARIABLES` that is set did, in the order of the table."""
    return search.explain_variables(VARIABLES, _explain_effect, environ)


def _explain_effect(variable: Variable, trusted: Mapping[str, str]) -> str:
    """Return why a variable that is set has no effect, "" if it has one."""
    if malformed := _find_list_error(variable.name, trusted):
        return f"ignored: {malformed.reason}"
    winner = next(
        (
            name
            for name in variable.replaced_by
            if trusted.get(name) and not _find_list_error(name, trusted)
        ),
        None,
    )
    return f"no effect: {winner} is set and replaces it" if winner else ""


def split_quoted_list(variable: str, text: str) -> list[str] | Refusal:
    """Split a `,`-list of the Unified Runtime (spec, section A).

    An element that contains `:` or `;` must be quoted. Quotes do not protect a comma. One comma at
    the end is ignored.

    Returns:
        The elements, or the reason why the whole list is ignored.
    """
    elements: list[str] = []
    for number, element in enumerate(text.removesuffix(",").split(","), start=1):
        quoted = len(element) > 1 and element[0] == element[-1] and element[0] in "'\""
        bare = element[1:-1] if quoted else element
        if not bare:
            return Refusal(
                variable, f"element {number} of {text!r} is empty", "remove the extra ','", variable
            )
        if not quoted and set(bare) & {":", ";"}:
            reason = f"element {number} of {text!r} contains ':' or ';' and is not in quotes"
            return Refusal(
                variable,
                reason,
                f"separate elements by ',', or write {variable}='\"{bare}\"'",
                variable,
            )
        elements.append(bare)
    return elements


def _find_list_error(variable: str, environ: Mapping[str, str]) -> Refusal | None:
    """Return the error in one of the lists, None if there is none or the variable is not a list."""
    elements = (
        split_quoted_list(variable, environ[variable])
        if variable in (FORCE_LOAD, SEARCH_PATH)
        else None
    )
    return elements if isinstance(elements, Refusal) else None


def is_true(environ: Mapping[str, str], variable: str, default: bool) -> bool:
    """Return a switch as the Unified Runtime reads it: y, yes, t, true and 1 mean true."""
    value = environ.get(variable)
    return value.lower() in ("y", "yes", "t", "true", "1") if value else default
