"""Bound adapters and plugins: fakes and real ones, their answers, and refusals."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from fairlead.loader.base import layers
from fairlead.loader.base.abi import Api
from fairlead.loader.base.library import open_library
from fairlead.loader.pi.abi import PI
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.binding import BindError, PluginBinding, bind_adapter, bind_plugin
from helpers.plugin_header import FIRST_ANSWER

LAYOUTS = tuple(UR.layouts)


OLDEST = len(LAYOUTS)


CODES = {name: code for api in (UR, PI) for code, (name, _) in api.errors.items()}


UNSUPPORTED = CODES["UR_RESULT_ERROR_UNSUPPORTED_FEATURE"]
UNINITIALIZED = CODES["UR_RESULT_ERROR_UNINITIALIZED"]


OPEN_REAL = """
import sys, ctypes
from pathlib import Path
from fairlead.loader.base.library import open_with_siblings
from fairlead.loader.ur.binding import bind_adapter, bind_plugin
path = Path(sys.argv[1])
library = open_with_siblings(str(path), [str(path.parent.parent / "umf"), sys.prefix + "/lib"])
assert library is not None
"""


def adapter(path: Path, layout: str | None = None) -> PluginBinding:
    return bind_adapter(open_library(str(path)), layout=layout)


def plugin(path: Path) -> PluginBinding:
    return bind_plugin(open_library(str(path)))


def refusal(path: Path, layout: str | None = None) -> str:
    """What the user reads when an adapter is refused: there is always something to do about it."""
    with pytest.raises(BindError) as caught:
        adapter(path, layout)
    assert caught.value.remedy
    return str(caught.value)


def plugin_refusal(path: Path) -> str:
    with pytest.raises(BindError) as caught:
        plugin(path)
    assert caught.value.remedy
    return str(caught.value)


def answer(binding: PluginBinding, name: str) -> int:
    """What a function answers to no argument at all."""
    function = ctypes.CFUNCTYPE(ctypes.c_int32)
    slot = binding.table.api.functions[name].slot
    assert slot is not None
    return function(binding.table.get_pointer(slot))()


def own_answer(api: Api, name: str) -> int:
    return FIRST_ANSWER + (api.functions[name].slot or 0)


def stubs(api: Api) -> set[int]:
    return {*layers.make_stubs(api, "unsupported"), *layers.make_stubs(api, "uninitialized")}


def implemented(binding: PluginBinding) -> set[str]:
    """The functions in whose slots no stub stands."""
    api = binding.table.api
    return {f.name for f in api.slots if binding.table.get_pointer(f.slot or 0) not in stubs(api)}


def names_of(layout: str) -> list[str]:
    return [name for functions in UR.layouts[layout].values() for name in functions if name]
