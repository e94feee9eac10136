"""The ABI of Level Zero: the contents of `ze.abi`, a few constants, and the error class.

A driver fills one table for each getter (`name_getter`). The caller says which version of the
tables it knows. A table of an older version ends before the functions that came later, so whoever
fills it writes no more than `count_entries` says.
"""

from __future__ import annotations

import os
from typing import Final

from ..base.abi import Api
from ..base.errors import CodeError

ZE: Final = Api(os.path.join(os.path.dirname(__file__), "ze.abi"))

#: The version of the API that the data describes, as in file names and messages.
VERSION: Final = "1.17"

#: The same as table getters take it: the major version in the upper 16 bits, then the minor one.
API_VERSION: Final = 1 << 16 | 17

#: The name of an extension begins so and ends with that of the OpenCL platform. Each handle of
#: fairlead's own driver has one.
PLATFORM_EXTENSION: Final = "ZE_fairlead_on_"

#: Table name to the names of its functions in order: all of the newest version.
TABLES: Final[dict[str, tuple[str, ...]]] = {
    table: tuple(name for name in names if name) for table, names in ZE.layouts[VERSION].items()
}


def name_getter(table: str, prefix: str = "ze") -> str:
    """Return the exported function that fills a table: `zeGetKernelProcAddrTable` for "Kernel".

    Args:
        table: the name of the table, a key of `TABLES` or one of `ZE.other_tables[prefix]`.
        prefix: "ze" for the core API, "zet" for tools, "zes" for Sysman.
    """
    return f"{prefix}Get{table}ProcAddrTable"


def count_entries(table: str, version: int) -> int:
    """Return how many entries a table has in a version of the API.

    Args:
        table: a key of `TABLES`.
        version: the version, as `API_VERSION` has it.
    """
    known = version >> 16, version & 0xFFFF
    return sum(ZE.functions[name].since <= known for name in TABLES[table])


class LevelZeroError(CodeError):
    """A Level Zero function returned an error code (ze_result_t). `value` is the number."""

    api = ZE
    api_name = "Level Zero"
    unknown = "ZE_RESULT_{value:#x}"


check: Final = LevelZeroError.check
