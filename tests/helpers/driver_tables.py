"""Which entries of a driver's own table fairlead has exchanged, and what SECURITY.md says of it."""

from __future__ import annotations

import ast
import re
from typing import Final

from helpers.support import ROOT

#: `exchanged()` names the functions whose entries are others than at the start.
EXCHANGED: Final = """
import gc, os, sys
import numpy as np
import pyopencl as cl
import fairlead
from fairlead.icd.abi import OPENCL, count_slots
from fairlead.icd.tables import parse_version
from fairlead.loader.base.memory import read_word, read_words

def table_of(context):
    version = parse_version(context.devices[0].platform.version)
    return read_words(read_word(context.int_ptr), count_slots(version))

def exchanged():
    gc.collect()
    now = table_of(context)
    return sorted(f.name for f, a, b in zip(OPENCL.slots, before, now) if a != b)
"""


def functions_of_row(begins: str) -> list[str]:
    """The functions in the rows of SECURITY.md's table that begin so, in order of name."""
    rows = re.findall(rf"^\| {begins}.*$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    return sorted(re.findall(r"`(cl[A-Z]\w+)`", "".join(rows)))


def read_lists(text: str) -> list[list[str]]:
    return [ast.literal_eval(line) for line in text.splitlines()]
