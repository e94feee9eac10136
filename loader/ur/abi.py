"""The ABI of Unified Runtime: the contents of `ur.abi`, a few constants, and the error class.

A *layout* is the order of the functions in an adapter's tables. Several releases that all report
version 0.12 have different layouts (`UR.layouts`). `binding` detects the layout from the adapter's
behaviour. The slots of `UR` are those of the newest layout, followed by the functions that were
removed.
"""

from __future__ import annotations

import os
from typing import Final

from ..base.abi import Api
from ..base.errors import CodeError

UR: Final = Api(os.path.join(os.path.dirname(__file__), "ur.abi"))

#: The version of the API that fairlead uses, as in file names and messages.
VERSION: Final = "0.12"

#: The version that table getters take: UR_API_VERSION_CURRENT of 0.12. An adapter of another
#: version returns UNSUPPORTED_VERSION.
API_VERSION: Final = 0x0000000C

UR_RESULT_SUCCESS: Final = 0


def name_getter(table: str) -> str:
    """Return the exported function that fills a table: `urGetKernelProcAddrTable` for "Kernel"."""
    return f"urGet{table}ProcAddrTable"


class URError(CodeError):
    """A Unified Runtime function returned an error code (ur_result_t). `value` is the number."""

    api = UR
    api_name = "Unified Runtime"
    unknown = "UR_RESULT_{value}"


check: Final = URError.check
