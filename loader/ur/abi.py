"""The Unified Runtime ABI: `UR` is the content of `ur.abi`; here are also the few facts of it that are not a list, and its errors.

A *layout* is the order of the functions in an adapter's tables. Several releases that all call themselves 0.12 have different ones
(`UR.layouts`), so that the number says nothing; `binding` tells them by what an adapter does. The slots of `UR` are those of the
newest layout, followed by the functions that were retired.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ..base.abi import Api
from ..base.errors import CodeError

UR: Final = Api(Path(__file__).with_name("ur.abi"))

#: The version of the API that we speak, as file names and messages have it.
VERSION: Final = "0.12"

#: What every table getter is given: UR_API_VERSION_CURRENT of 0.12. An adapter of another version answers UNSUPPORTED_VERSION.
API_VERSION: Final = 0x0000000C

UR_RESULT_SUCCESS: Final = 0


def getter(table: str) -> str:
    """The exported function that fills a table: `urGetKernelProcAddrTable` for "Kernel"."""
    return f"urGet{table}ProcAddrTable"


class URError(CodeError):
    """A Unified Runtime function answered with an error code (ur_result_t); `value` is the number."""

    api = UR
    api_name = "Unified Runtime"
    unknown = "UR_RESULT_{value}"


def check(code: int, routine: str, detail: str = "", remedy: str = "") -> None:
    """Raise URError unless `code` is UR_RESULT_SUCCESS."""
    if code:
        raise URError.of(code, routine, detail, remedy)
