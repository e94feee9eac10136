"""One test for all rows of a table."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable
from typing import Any


def table(names: str, rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run the decorated test once for all rows, where pytest.mark.parametrize makes a test of each.

    Every row is tried, and the test fails with the tracebacks of those that failed. The fixtures of
    the test are made once, so a row must leave them as it found them.

    Args:
        names: the parameters of the test that a row gives, with commas between them.
        rows: a tuple of values for each row; a value alone where there is one name.
    """
    fields = [name.strip() for name in names.split(",")]
    table = [row if len(fields) > 1 else (row,) for row in rows]
    assert table, "a table without rows tests nothing"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failed = []
            for row in table:
                try:
                    test(**fixtures, **dict(zip(fields, row, strict=True)))
                except Exception:
                    failed.append(f"{names} = {row!r}\n{traceback.format_exc()}")
            assert not failed, f"{len(failed)} of {len(table)} rows:\n" + "\n".join(failed)

        signature = inspect.signature(test)
        left = [value for name, value in signature.parameters.items() if name not in fields]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate
