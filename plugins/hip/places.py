"""Where AMD's files are: below ROCM_PATH, /opt/rocm and /usr."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from typing import Final

from ...loader.base.search import filter_environ

_ROOTS: Final = "/opt/rocm", "/usr"


def find_rocm_files(*patterns: str) -> Iterator[str]:
    """Yield the files of patterns, those of a pattern from the highest version on.

    Args:
        patterns: paths below the folders, with wildcards.
    """
    for root in filter(None, (filter_environ().get("ROCM_PATH"), *_ROOTS)):
        for pattern in patterns:
            yield from sorted(
                glob.glob(os.path.join(root, pattern)), key=_parse_version, reverse=True
            )


def _parse_version(path: str) -> tuple[tuple[int, ...], str]:
    """Return the numbers in a path, and the path: lib/llvm-15 comes after lib/llvm-9."""
    return tuple(map(int, re.findall(r"\d+", path))), path
