"""`Adapter`: declarations, codes, the last error, the log, references, and the order in which
things end.

Calls are made as C makes them, without C.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.entry_points import CODES, TABLE

from fairlead.loader.base import log
from fairlead.loader.base.errors import FairleadError
from fairlead.loader.ur.abi import UR, URError
from fairlead.plugins import Adapter, Object, failure
from fairlead.plugins.sdk._native import ffi, lib


class Started:
    """An adapter as a program sees it."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.entries = adapter.entries(TABLE)
        handle = ffi.new("uintptr_t *")
        assert self("urAdapterGet", 1, handle, ffi.NULL) == "SUCCESS"
        self.handle = handle[0]

    def __call__(self, name: str, *arguments: Any) -> str:
        """The name of the code."""
        return CODES[self.entries[name](0, *arguments)]

    def make(self, name: str, *arguments: Any) -> int:
        """The handle that a function gives through its last argument."""
        handle = ffi.new("uintptr_t *")
        assert self(name, *arguments, handle) == "SUCCESS"
        return handle[0]

    def info(self, name: str, handle: int, property_: str) -> Any:
        """The name of a query's code, or its answer as a number."""
        value = ffi.new("uint64_t *")
        code = self(name, handle, UR[property_], 8, int(ffi.cast("uintptr_t", value)), ffi.NULL)
        return value[0] if code == "SUCCESS" else code

    def last_error(self) -> tuple[str, int]:
        message, error = ffi.new("char **"), ffi.new("int32_t *")
        assert self("urAdapterGetLastError", self.handle, message, error) == "SUCCESS"
        return ffi.string(message[0]).decode(), error[0]


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Adapter:
    """One with queues, whose urQueueFinish raises what the test puts into `adapter.error`."""
    monkeypatch.delenv("UR_LOG_FAIRLEAD", raising=False)
    monkeypatch.setattr(log, "_loggers", {})
    adapter = Adapter("test", backend="UR_BACKEND_OPENCL", version=3)
    adapter.error = None  # pyright: ignore[reportAttributeAccessIssue]
    queue_kind = adapter.kind("ur_queue_handle_t")
    context = adapter.kind("ur_context_handle_t")
    device = adapter.kind("ur_device_handle_t", counted=False)()
    platform = adapter.kind("ur_platform_handle_t", counted=False)()

    @adapter.entry
    def urQueueFinish(hQueue: Object) -> None:
        if adapter.error is not None:  # pyright: ignore[reportAttributeAccessIssue]
            raise adapter.error  # pyright: ignore[reportAttributeAccessIssue]

    adapter.declare(
        urPlatformGet=lambda: [platform],
        urDeviceGet=lambda: [device],
        urContextCreate=context,
        urQueueCreate=queue_kind,
    )
    return adapter


@pytest.fixture
def started(adapter: Adapter) -> Started:
    return Started(adapter)


@pytest.fixture
def queue(started: Started) -> int:
    """A queue's handle."""
    device = ffi.new("uintptr_t *")
    platform = ffi.new("uintptr_t *")
    assert started("urPlatformGet", started.handle, 1, platform, ffi.NULL) == "SUCCESS"
    given = "urDeviceGet", platform[0], UR["UR_DEVICE_TYPE_ALL"], 1, device, ffi.NULL
    assert started(*given) == "SUCCESS"
    context = started.make("urContextCreate", 1, device, ffi.NULL)
    return started.make("urQueueCreate", context, device[0], ffi.NULL)


def finish(started: Started, queue: int, error: BaseException | None) -> str:
    started.adapter.error = error  # pyright: ignore[reportAttributeAccessIssue]
    return started("urQueueFinish", queue)


# declarations


def test_wrong_declarations_are_refused_where_they_are_made(adapter: Adapter) -> None:
    with pytest.raises(TypeError, match="Unified Runtime has no function urQueueFinnish"):
        adapter.declare(urQueueFinnish=lambda: None)
    with pytest.raises(TypeError, match="urQueueFlush has no parameter queue; it has hQueue"):
        adapter.declare(urQueueFlush=lambda queue: None)
    with pytest.raises(TypeError, match=r"Odd\.type is not a type of handles"):
        adapter.kind(type("Odd", (Object,), {"type": "ur_bool_t"}))
    with pytest.raises(TypeError, match=r"Object\.type is not a type of handles"):
        adapter.kind(Object)
    with pytest.raises(TypeError, match="urQueueGetInfo has no property UR_DEVICE_INFO_NAME"):
        adapter.info("urQueueGetInfo", {"UR_DEVICE_INFO_NAME": "x"})
    with pytest.raises(TypeError, match="has no property UR_QUEUE_INFO_NAME"):
        adapter.info("urQueueGetInfo", {"UR_QUEUE_INFO_NAME": "x"})
    with pytest.raises(KeyError):
        Adapter("x", backend="UR_BACKEND_WRONG")


def test_a_declaration_gives_back_what_it_declares(adapter: Adapter) -> None:
    def urQueueFlush() -> None: ...

    class Event(Object):
        type = "ur_event_handle_t"

    assert adapter.entry(urQueueFlush) is urQueueFlush
    assert adapter.kind(Event) is Event
    assert {"urQueueFlush", "urEventRetain", "urEventRelease", "urAdapterGet"} <= adapter.declared
    assert "urEventWait" not in adapter.declared


def test_an_adapter_has_no_more_entries_than_it_declares(started: Started) -> None:
    assert set(started.entries) == {
        "urAdapterGet",
        "urAdapterGetInfo",
        "urAdapterGetLastError",
        "urAdapterRelease",
        "urAdapterRetain",
        "urAdapterSetLoggerCallback",
        "urAdapterSetLoggerCallbackLevel",
        "urContextCreate",
        "urContextRelease",
        "urContextRetain",
        "urDeviceGet",
        "urDeviceRelease",
        "urDeviceRetain",
        "urPlatformGet",
        "urQueueCreate",
        "urQueueFinish",
        "urQueueRelease",
        "urQueueRetain",
    }


def test_the_authors_own_retain_goes_first(adapter: Adapter) -> None:
    seen = []
    adapter.declare(urAdapterRetain=lambda hAdapter: seen.append(hAdapter))
    started = Started(adapter)
    assert started("urAdapterRetain", started.handle) == "SUCCESS"
    assert seen == [adapter] and adapter.references == 1


# queries by a table


def test_a_table_answers_by_value_by_function_and_by_nothing(adapter: Adapter) -> None:
    adapter.info(
        "urQueueGetInfo",
        {
            "UR_QUEUE_INFO_FLAGS": 5,
            "UR_QUEUE_INFO_REFERENCE_COUNT": lambda queue: queue.references,
            "UR_QUEUE_INFO_CONTEXT": None,
            "UR_QUEUE_INFO_DEVICE": lambda queue: None,
            "UR_QUEUE_INFO_EMPTY": None,
        },
    )
    started, queue = Started(adapter), adapter.kind("ur_queue_handle_t")()
    handle = adapter.objects.give(queue)
    adapter.objects.give(queue)
    answers = {
        name: started.info("urQueueGetInfo", handle, f"UR_QUEUE_INFO_{name}")
        for name in ("FLAGS", "REFERENCE_COUNT", "CONTEXT", "DEVICE", "EMPTY", "SIZE")
    }
    assert answers == {
        "FLAGS": 5,
        "REFERENCE_COUNT": 2,
        "CONTEXT": 0,
        "DEVICE": 0,
        "EMPTY": "UNSUPPORTED_ENUMERATION",
        "SIZE": "UNSUPPORTED_ENUMERATION",
    }


def test_the_adapter_answers_for_itself(started: Started) -> None:
    assert started("urAdapterRetain", started.handle) == "SUCCESS"
    answers = [
        started.info("urAdapterGetInfo", started.handle, f"UR_ADAPTER_INFO_{name}")
        for name in ("BACKEND", "REFERENCE_COUNT", "VERSION")
    ]
    assert answers == [UR["UR_BACKEND_OPENCL"], 2, 3]


# codes and the last error


class OwnError(Exception):
    """An adapter's own."""


class OwnCode(OwnError):
    value = -5


@pytest.mark.parametrize(
    ("error", "code", "message", "number"),
    [
        (
            failure("INVALID_VALUE", "of x"),
            "INVALID_VALUE",
            "of x",
            UR.codes["UR_RESULT_ERROR_INVALID_VALUE"],
        ),
        (NotImplementedError("yet"), "UNSUPPORTED_FEATURE", "yet", 0),
        (MemoryError("all"), "OUT_OF_HOST_MEMORY", "all", 0),
        (OwnError("mine"), "DEVICE_LOST", "mine", 0),
        (OwnCode("derived"), "DEVICE_LOST", "derived", -5),
        (LookupError("by function"), "INVALID_SIZE", "by function", 0),
        (FairleadError("of fairlead"), "INVALID_ARGUMENT", "of fairlead", 0),
        (ZeroDivisionError("oops"), "UNKNOWN", "ZeroDivisionError: oops", 0),
        (SystemExit(3), "UNKNOWN", "SystemExit: 3", 0),
        (KeyboardInterrupt(), "UNKNOWN", "KeyboardInterrupt: ", 0),
    ],
)
def test_what_is_raised_becomes_a_code_and_the_last_error(
    started: Started, queue: int, error: BaseException, code: str, message: str, number: int
) -> None:
    started.adapter.codes[OwnError] = "DEVICE_LOST"
    started.adapter.codes[FairleadError] = "INVALID_ARGUMENT"
    started.adapter.codes[LookupError] = lambda error: (
        f"INVALID_{'SIZE' if error.args else 'VALUE'}"
    )
    assert finish(started, queue, error) == code
    assert message in started.last_error()[0] and started.last_error()[1] == number
    if isinstance(error, KeyboardInterrupt):  # it comes again, where a shell's entry point ends
        with pytest.raises(KeyboardInterrupt):
            lib.fl_raise_interrupt()
    assert finish(started, queue, None) == "SUCCESS"
    assert message in started.last_error()[0], "a success changes nothing"


def test_what_is_not_expected_is_in_the_log_with_its_traceback(
    started: Started, queue: int, capsys: pytest.CaptureFixture[str]
) -> None:
    finish(started, queue, ZeroDivisionError("oops"))
    err = capsys.readouterr().err
    assert (
        err.startswith("<test>[ERROR]: urQueueFinish failed\nTraceback")
        and "ZeroDivisionError: oops" in err
    )
    finish(started, queue, failure("INVALID_VALUE"))
    finish(started, queue, NotImplementedError())
    assert capsys.readouterr().err == ""


def test_an_error_that_cannot_be_told_is_an_error(
    started: Started, queue: int, capsys: pytest.CaptureFixture[str]
) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert finish(started, queue, Mute()) == "UNKNOWN"
    started.adapter.codes[OwnError] = "NO_SUCH_CODE"
    assert finish(started, queue, OwnError()) == "UNKNOWN"
    err = capsys.readouterr().err
    assert "no text" in err and "NO_SUCH_CODE" in err


def test_every_thread_has_its_own_last_error(started: Started, queue: int) -> None:
    finish(started, queue, OwnError("of the first"))
    found = []

    def other() -> None:
        found.append(started.last_error())
        finish(started, queue, OwnError("of the second"))
        found.append(started.last_error())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert [message for message, _ in found] == ["", "OwnError: of the second"]
    assert started.last_error()[0] == "OwnError: of the first"


def test_a_message_may_be_anything(started: Started, queue: int) -> None:
    finish(started, queue, OwnError("\udcff ü"))
    assert started.last_error()[0] == "OwnError: ? ü"


# the log


@pytest.fixture
def callback(started: Started) -> Iterator[list[tuple[int, str, int]]]:
    """What the program's logger is told: level, message, its own data. It wants warnings."""
    told: list[tuple[int, str, int]] = []

    @ffi.callback("void (*)(int32_t, const char *, void *)")
    def logger(level: int, message: Any, data: Any) -> None:
        told.append((level, ffi.string(message).decode(), int(ffi.cast("uintptr_t", data))))

    address = int(ffi.cast("uintptr_t", logger))
    level = UR["UR_LOGGER_LEVEL_WARN"]
    assert started("urAdapterSetLoggerCallback", started.handle, address, 77, level) == "SUCCESS"
    yield told


def test_the_programs_callback_is_told_from_its_level_on(
    started: Started, callback: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for level in ("debug", "info", "warning", "error"):
        started.adapter.log(level, f"of {level}")
    assert callback == [(2, "of warning", 77), (3, "of error", 77)]
    given = "urAdapterSetLoggerCallbackLevel", started.handle, UR["UR_LOGGER_LEVEL_DEBUG"]
    assert started(*given) == "SUCCESS"
    started.adapter.log("debug", "ü\udcff")
    assert callback[2:] == [(0, "ü?", 77)]
    given = "urAdapterSetLoggerCallbackLevel", started.handle, UR["UR_LOGGER_LEVEL_QUIET"]
    assert started(*given) == "SUCCESS"
    started.adapter.log("error", "nobody hears")
    assert len(callback) == 3 and capsys.readouterr().err == "<test>[ERROR]: of error\n"


def test_a_callback_has_to_be_there(started: Started) -> None:
    assert started("urAdapterSetLoggerCallback", started.handle, 0, 0, 0) == "INVALID_NULL_POINTER"
    assert started("urAdapterSetLoggerCallback", started.handle, 1, 0, 9) == "INVALID_ENUMERATION"
    assert started("urAdapterSetLoggerCallbackLevel", started.handle, 9) == "INVALID_ENUMERATION"


def test_without_a_callback_the_log_is_standard_error(
    adapter: Adapter, capsys: pytest.CaptureFixture[str]
) -> None:
    for level in ("debug", "info", "warning", "error"):
        adapter.log(level, f"of {level}")
    assert capsys.readouterr().err == "<test>[WARNING]: of warning\n<test>[ERROR]: of error\n"


def test_the_variable_says_what_is_logged_also_beside_a_callback(
    started: Started,
    callback: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    queue: int,
) -> None:
    monkeypatch.setenv("UR_LOG_FAIRLEAD", "level:info;output:stdout")
    finish(started, queue, failure("INVALID_VALUE", "of x"))
    started.adapter.log("debug", "not this")
    started.adapter.log("error", "but this")
    out, err = capsys.readouterr()
    assert err == "" and [line.split(":")[0] for line in out.splitlines()] == [
        "<test>[INFO]",
        "<test>[ERROR]",
    ]
    assert "urQueueFinish" in out and "of x" in out
    assert callback == [(3, "but this", 77)]


# references and the end


class Noted(Object):
    def __init__(self, log: list[str], name: str, kind: str = "event") -> None:
        self.type = f"ur_{kind}_handle_t"  # pyright: ignore  (a class has one)
        self.log, self.name = log, name

    def close(self) -> None:
        self.log.append(self.name)


@pytest.fixture
def ending(adapter: Adapter, started: Started) -> Iterator[Callable[[], list[str]]]:
    """A queue, a context and a device that are alive, a lent event, and what is to do at the end;
    what was done then, in its order."""
    log: list[str] = []
    kinds = ("queue", "context", "device", "event")
    held = [Noted(log, kind, kind) for kind in kinds]
    for thing in held[:3]:
        adapter.objects.give(thing)
    adapter.objects.show(held[3])

    def bad() -> None:
        log.append("bad")
        raise OSError("it will not")

    adapter.after_queues += [
        lambda: log.append("commands") or log.count("commands") < 3,
        lambda: log.append("clocks"),
    ]
    adapter.on_close += [lambda: log.append("added first"), bad, lambda: log.append("added last")]
    yield lambda: list(log)
    held.clear()


#: What commands use is needed until those of closed queues have ended.
ORDER = [
    *("queue", "clocks", "commands", "commands", "commands", "event", "clocks", "commands"),
    *("device", "context", "added last", "bad", "added first"),
]


def test_the_last_release_of_the_adapter_closes_everything_in_order(
    adapter: Adapter,
    started: Started,
    ending: Callable[[], list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert started("urAdapterRetain", started.handle) == "SUCCESS"
    assert started("urAdapterRelease", started.handle) == "SUCCESS" and ending() == []
    assert started("urAdapterRelease", started.handle) == "SUCCESS" and ending() == ORDER
    assert "it will not" in capsys.readouterr().err
    assert started("urAdapterRelease", started.handle) == "INVALID_ARGUMENT"
    again = ffi.new("uintptr_t *")
    assert started("urAdapterGet", 1, again, ffi.NULL) == "SUCCESS" and again[0] != started.handle


def test_the_end_of_the_process_closes_everything_and_tells_the_program_nothing(
    adapter: Adapter,
    ending: Callable[[], list[str]],
    callback: list[Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    adapter.end()
    assert ending() == ORDER
    assert callback == [] and "it will not" in capsys.readouterr().err


def test_an_adapter_that_was_not_started_says_so() -> None:
    with pytest.raises(RuntimeError, match="idle is not started"):
        Adapter("idle").urAdapterRetain(Adapter("other"))
    Adapter("idle").shut()


def test_a_failed_creation_leaves_nothing_behind(adapter: Adapter) -> None:
    def urQueueCreate() -> Object:
        raise URError.from_code(UR.codes["UR_RESULT_ERROR_OUT_OF_RESOURCES"], "")

    adapter.entry(urQueueCreate)
    started = Started(adapter)
    queue = ffi.new("uintptr_t *", 99)
    assert started("urQueueCreate", 1, 2, ffi.NULL, queue) == "INVALID_CONTEXT"
    assert queue[0] == 99
