"""The ABI of DPC++'s Plugin Interface (PI 15.47): the contents of `pi.abi`, and a few constants.

A plugin exports `piPluginInit(struct _pi_plugin *)`. It compares versions, and writes its own
version and the table of its functions. Their order is that of pi.def, which differs between
versions. `binding` checks it against the exported names.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from ..base.abi import Api
from ..base.errors import CodeError

if TYPE_CHECKING:
    from ..base.table import DispatchTable

PI: Final = Api(os.path.join(os.path.dirname(__file__), "pi.abi"))

#: The version that fairlead reports to a plugin (`_PI_H_VERSION_STRING`). Its major version must be
#: the plugin's or a later one.
API_VERSION: Final = "15.47"

#: struct _pi_plugin: char PiVersion[20], char PluginVersion[20], char *Targets, then the table.
VERSION_SIZE: Final = 20
TABLE_OFFSET: Final = 48

PI_SUCCESS: Final = 0


class PIError(CodeError):
    """A PI function returned an error code (pi_result). `value` is the number."""

    api = PI
    api_name = "PI"
    unknown = "PI_ERROR_{value}"


check: Final = PIError.check


def serve(table: DispatchTable) -> DispatchTable:
    """Return a PI table that the Unified Runtime adapter behind `table` answers.

    See `loader/pi/serve.py`.

    Raises:
        FairleadError: `table` is not a table of Unified Runtime, or 16 tables of PI are in use.
    """
    from . import serve as pi_from_ur  # it imports this module, and few programs need it

    return pi_from_ur.serve(table)
