"""The DPC++ Plugin Interface (PI 15.47): `PI` is the content of `pi.abi`; here are also the few facts of it that are not a list.

A plugin exports `piPluginInit(struct _pi_plugin *)`, which compares versions and fills in the plugin's own version and the table of
its functions. Their order is that of pi.def, and it differs between versions; `binding` checks it against the exported names.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..base.abi import Api
from ..base.errors import CodeError

if TYPE_CHECKING:
    from ..base.table import DispatchTable

PI: Final = Api(Path(__file__).with_name("pi.abi"))

#: The version that we tell a plugin we are (`_PI_H_VERSION_STRING`); it must begin with the plugin's own major version or a later one.
API_VERSION: Final = "15.47"

#: struct _pi_plugin: char PiVersion[20], char PluginVersion[20], char *Targets, then the table.
VERSION_SIZE: Final = 20
TABLE_OFFSET: Final = 48

PI_SUCCESS: Final = 0


class PIError(CodeError):
    """A PI function answered with an error code (pi_result); `value` is the number."""

    api = PI
    api_name = "PI"
    unknown = "PI_ERROR_{value}"


def check(code: int, routine: str, detail: str = "", remedy: str = "") -> None:
    """Raise PIError unless `code` is PI_SUCCESS."""
    if code:
        raise PIError.of(code, routine, detail, remedy)


def serve(table: DispatchTable) -> DispatchTable:
    """A PI table that is answered from the Unified Runtime adapter behind `table`: see `pi_from_ur`, which also says what is not.

    Raises FairleadError if `table` is none of UR, or if 16 tables of PI are layered or served already.
    """
    from . import serve as pi_from_ur  # it needs this module, and few programs need it

    return pi_from_ur.serve(table)
