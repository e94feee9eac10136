"""Calls a function in several threads at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_threads(count: int, work: Callable[[int], T]) -> list[T]:
    """Call a function with 0, 1, 2… in a new thread each, and return what the calls return.

    No call begins before all threads have.

    Raises:
        BaseException: what one of them has raised.
    """
    found, errors = dict[int, T](), list[BaseException]()
    all_are_here = threading.Barrier(count)

    def run(number: int) -> None:
        all_are_here.wait()
        try:
            found[number] = work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [found[number] for number in range(count)]
