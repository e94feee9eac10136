"""Links of modules that import what other modules export, and what they say of that.

OpenCL links compiled programs to a new program. So a module that is linked has its own copy of the
variables of the modules that it imports from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ...icd.errors import OpenCLError
from ...loader.ze.abi import LevelZeroError
from .core import ZE, driver, make_failure
from .modules import ZeBuildLog, ZeModule, give_log


def _find_providers(module: ZeModule, modules: Sequence[ZeModule]) -> Iterator[ZeModule]:
    """Yield the modules that export what a module imports.

    Raises:
        LevelZeroError: MODULE_LINK_FAILURE if none of them exports it, or several do.
    """
    for name in module.imports:
        found = [one for one in modules if one is not module and name in one.exports]
        if len(found) != 1:
            what = "several modules export" if found else "no module exports"
            raise make_failure("MODULE_LINK_FAILURE", f"{what} {name}")
        yield found[0]


def _find_links(module: ZeModule, modules: Sequence[ZeModule]) -> list[ZeModule]:
    """Return the modules that a module needs, directly or not.

    Raises:
        LevelZeroError: MODULE_LINK_FAILURE.
    """
    needed = [module]
    for one in needed:  # which grows
        others = one.links if one.links is not None else _find_providers(one, modules)
        needed += [other for other in dict.fromkeys(others) if other not in needed]
    return needed[1:]


@driver.entry
def zeModuleDynamicLink(phModules: list[ZeModule], phLinkLog: Any) -> None:
    """Link the modules that have imports, once: all of them, or none."""
    if any(one.whole is not phModules[0].whole for one in phModules):
        raise make_failure("INVALID_ARGUMENT", "the modules are of several devices")
    try:
        unlinked = [one for one in dict.fromkeys(phModules) if one.links is None]
        plans = [(one, _find_links(one, phModules)) for one in unlinked]
        made = [one.link(links) for one, links in plans]
    except (OpenCLError, LevelZeroError) as error:
        give_log(str(error), phLinkLog)
        raise
    for (one, links), program in zip(plans, made, strict=True):
        one.use(program, links)
    give_log("\n".join(program.log for program in made if program.log), phLinkLog)


_LISTS: Final = {
    ZE[f"ZE_LINKAGE_INSPECTION_EXT_FLAG_{name}"]: title
    for name, title in (
        ("IMPORTS", "imports"),
        ("UNRESOLVABLE_IMPORTS", "unresolvable imports"),
        ("EXPORTS", "exports"),
    )
}


def _list_names(title: str, modules: Sequence[ZeModule]) -> list[str]:
    imports = {name for one in modules for name in one.imports}
    exports = {name for one in modules for name in one.exports}
    return sorted(
        {"imports": imports, "exports": exports, "unresolvable imports": imports - exports}[title]
    )


@driver.entry
def zeModuleInspectLinkageExt(
    pInspectDesc: Any, numModules: int, phModules: list[ZeModule]
) -> ZeBuildLog:
    """Say what modules of SPIR-V import and export: a line for each list that is asked for."""
    lines = (
        f"{title}: {' '.join(_list_names(title, phModules))}".rstrip()
        for flag, title in _LISTS.items()
        if pInspectDesc.flags & flag
    )
    return ZeBuildLog("\n".join(lines))
