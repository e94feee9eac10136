"""Writes docs/driver_profiles.md from icd/driver_profiles.py."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from fairlead.icd.driver_profiles import ROWS


def as_markdown() -> str:
    """The text of docs/driver_profiles.md."""
    return "\n".join(_document()) + "\n"


def _document() -> Iterator[str]:
    yield "# Driver profiles"
    yield ""
    yield "<!-- Written by tests/helpers/profile_document.py; a test compares it. -->"
    yield ""
    yield from _wrapped(
        "fairlead treats some drivers specially. This is all of it: "
        "`icd/driver_profiles.py` is "
        "the only place that compares names and versions of drivers. One exception is "
        "`icd/pocl_kernels.py`: the layout of PoCL's binaries depends on its version. "
        "A *repair* "
        "changes how a driver is opened. A *habit* sets a capability that the rest of "
        "fairlead asks for. "
        "`fairlead doctor` lists the rows that apply to each driver of a machine."
    )
    yield ""
    yield from _wrapped(
        "`FAIRLEAD_QUIRKS` switches rows off. It is a list with commas: `-ID` switches one row "
        "off, `0` switches all repairs off. Habits stay on unless they are named, because "
        "programs may hang or crash without them. "
        "`FAIRLEAD_QUIRKS=-waits-one-at-a-time,-pip-icd-prefix` switches off one of each. "
        "`fairlead doctor` reports items without a meaning."
    )
    yield ""
    yield "| id | kind | capabilities |"
    yield "|---|---|---|"
    for row in ROWS:
        names = ", ".join(f"`{name}`" for name in row.sets)
        yield f"| `{row.id}` | {'repair' if row.is_repair else 'habit'} | {names} |"
    for row in ROWS:
        yield ""
        yield f"## {row.id}"
        yield ""
        yield from _wrapped(f"- Applies to: {row.applies}.")
        yield from _wrapped(f"- What fairlead does: {row.does}.")
        yield from _wrapped(f"- Evidence: {row.evidence}.")
        yield from _wrapped(f"- Test: `{row.test}`.")


def _wrapped(text: str) -> list[str]:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.wrap(
        text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


if __name__ == "__main__":
    (Path(__file__).parents[2] / "docs/driver_profiles.md").write_text(as_markdown(), "utf-8")
