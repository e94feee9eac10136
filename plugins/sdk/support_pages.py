"""The parts of the pages that say which entry points an adapter or a driver has."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence, Set


def wrap(text: str, indent: str = "") -> str:
    """Wrap a paragraph at 100 columns. Its later lines begin with `indent`."""
    return textwrap.fill(
        text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def list_sections(
    tables: Mapping[str, Sequence[str]], declared: Set[str], find_reason: Callable[[str], str]
) -> Iterator[str]:
    """Yield the section of each table.

    Args:
        tables: the names of entry points by the names of their tables.
        find_reason: returns why there is no entry point of a name.
    """
    for table, names in sorted(tables.items()):
        there = [f"`{name}`" for name in names if name in declared]
        lines = [f"## {table}: {len(there)} of {len(names)}\n"]
        if there:
            lines.append(wrap(f"Implemented: {', '.join(there)}.") + "\n")
        missing: dict[str, list[str]] = {}
        for name in names:
            if name not in declared:
                missing.setdefault(find_reason(name), []).append(f"`{name}`")
        for reason, without in missing.items():
            lines.append(wrap(f"Not implemented: {', '.join(without)}. {reason}") + "\n")
        yield "\n".join(lines)
