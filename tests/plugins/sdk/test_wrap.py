"""Entry points: what a body is given of what C gives, what C gets of what it returns, and the code
for everything that is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.entry_points import BYTES, CODES, FUNCTIONS, ROOM, TABLE, Call, is_query, kind_of, make
from helpers.tables import table
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.loader.base.argument_rules import list_parameter_rules
from fairlead.loader.ur.abi import UR, URError
from fairlead.plugins import Object, failure
from fairlead.plugins.sdk._native import ffi
from fairlead.plugins.sdk.contexts import ContextObject
from fairlead.plugins.sdk.conversions import find_code
from fairlead.plugins.sdk.objects import Registry
from fairlead.plugins.sdk.wrap import check_parameters, compile_entry, find_context


def entry(
    registry: Registry,
    name: str,
    body: Callable[..., Any],
    failed: Callable[..., int] | None = None,
) -> Callable[..., str]:
    """An entry point with this body: call it with the arguments of C, and get the name of the
    code."""

    def fail(error: BaseException, routine: str) -> int:
        if isinstance(error, URError):
            return error.value
        raise error

    compiled = compile_entry(registry, FUNCTIONS[name], body, failed or fail)
    return lambda *arguments: CODES[compiled(0, *arguments)]


@pytest.fixture
def registry() -> Registry:
    return Registry(TABLE)


# every entry point


@table("name", FUNCTIONS)
def test_right_arguments_arrive_and_what_is_returned_is_stored(name: str) -> None:
    call = Call(FUNCTIONS[name])
    arguments = call.good()
    assert (call(arguments), call.failed) == ("SUCCESS", [])
    assert call.seen is not None
    for p in FUNCTIONS[name].parameters:
        if p.name in call.seen:
            check_input(call, p, arguments[p.name], call.seen[p.name])
    for p in call.outputs() if not is_query(FUNCTIONS[name]) else []:
        check_output(call, p, arguments)


def check_input(call: Call, p: Any, given: Any, seen: Any) -> None:
    kind = kind_of(p)
    if kind == "handle":
        assert seen.handle == given and seen.type == p.type
    elif kind == "handles":
        assert [thing.handle for thing in seen] == list(ffi.unpack(given, ROOM))
    elif kind == "text":
        assert seen == "text"
    elif kind == "numbers" and p.stars == 1 and p.length:
        assert seen == [0] * ROOM
    else:
        assert seen == given


def check_output(call: Call, p: Any, arguments: dict[str, Any]) -> None:
    given, pointer = call.given[p.name], arguments[p.name]
    if kind_of(p) == "list out":
        assert ffi.unpack(pointer, ROOM) == [thing.handle for thing in given[:ROOM]]
        assert [thing.references for thing in given] == [1, 1, 0]
        counts = [
            arguments[other.name]
            for other in FUNCTIONS[call.function.name].parameters
            if other.name.startswith("pNum")
        ]
        assert [count[0] for count in counts] == [ROOM + 1]
    elif isinstance(given, Object):
        assert (
            pointer[0] == given.handle
            and given.references == 1
            and call.registry.list_owned(p.type)[given.handle] is given
        )
    elif given == "text":
        assert ffi.string(pointer[0]) == b"text"
    else:
        assert pointer[0] == given


@table("name", FUNCTIONS.keys() - {"urIPCGetMemHandleExp"})  # a row says that it needs them
def test_what_is_optional_may_be_left_out(name: str) -> None:
    call = Call(FUNCTIONS[name])
    arguments = call.good()
    for p in FUNCTIONS[name].parameters:
        if "optional" in p.words and p.stars + (kind_of(p) in ("handle", "address")):
            arguments[p.name] = 0 if kind_of(p) in ("handle", "address") else ffi.NULL
            if p.length.startswith(("num", "Num", "prop")):
                arguments[p.length] = 0
    if "pPropSizeRet" in arguments:
        arguments["pPropSizeRet"] = ffi.new("size_t *")
    if name == "urPlatformGet":
        arguments["pNumPlatforms"] = ffi.new("uint32_t *")
    assert (call(arguments), call.failed) == ("SUCCESS", [])
    assert call.seen is not None
    for p in FUNCTIONS[name].parameters:
        if "optional" in p.words and p.name in call.seen and (p.stars or kind_of(p) == "handle"):
            is_list = kind_of(p) == "handles" or p.name == "pSyncPointWaitList"
            assert call.seen[p.name] == ([] if is_list else 0 if kind_of(p) == "address" else None)


@table("name", FUNCTIONS)
def test_one_wrong_argument_is_refused_with_its_code_before_the_body_runs(name: str) -> None:
    call = Call(FUNCTIONS[name])
    for what, code, change in call.wrong():
        arguments = call.good()
        change(arguments)
        assert (what, call(arguments)) == (what, code)
        assert call.seen is None, what


@pytest.mark.slow
@given(st.data())
@settings(max_examples=300)
def test_any_mixture_of_right_and_wrong_is_refused_with_the_code_of_one_of_the_wrong(
    data: st.DataObject,
) -> None:
    call = Call(FUNCTIONS[data.draw(st.sampled_from(sorted(FUNCTIONS)))])
    ways = list(call.wrong())
    chosen = data.draw(st.lists(st.sampled_from(ways), max_size=3)) if ways else []
    arguments = call.good()
    for _, _, change in chosen:
        change(arguments)
    code = call(arguments)
    if chosen:
        # two wrongs of one list may make it right: NULL, and no count
        assert call.seen is not None or code in {code for _, code, _ in ways}
    else:
        assert code == "SUCCESS"
    assert not call.failed


def test_the_codes_are_those_that_the_header_lists(headers: Path) -> None:
    """Of the rules for parameters that are not our own."""
    comments = re.findall(
        r"((?:///[^\n]*\n)+)UR_APIEXPORT ur_result_t UR_APICALL (\w+)\(",
        (headers / "unified-runtime/ur_api.h").read_text(encoding="utf-8"),
    )
    listed = {
        name: set(re.findall(r"- ::UR_RESULT_(?:ERROR_)?(\w+)", comment))
        for comment, name in comments
    }
    missing = {
        (name, rule.parameter, rule.code)
        for name in FUNCTIONS.keys() & listed.keys()
        for p in FUNCTIONS[name].parameters
        for rule in list_parameter_rules(FUNCTIONS[name], p)
        if rule.code not in listed[name]
    }
    # lists, counts and queries of some functions, of which the header says nothing
    silent = {"numWorkDim", "phDevices", "phMemList", "phSubDevices", "pPropValue", "pPropSizeRet"}
    unsaid = re.compile("ExternalSemaphore|ImageCreateWithNative")
    said = {row for row in missing if row[1] not in silent and not unsaid.search(row[0])}
    assert not said


# the rows of wrap's table that have more to them


def test_a_handle_that_may_be_null_is_none_then(registry: Registry) -> None:
    seen = []
    call = entry(registry, "urMemGetNativeHandle", lambda hDevice: seen.append(hDevice) or 7)
    native = ffi.new("uintptr_t *")
    assert call(registry.give(make("ur_mem_handle_t")), 0, native) == "SUCCESS"
    assert (seen, native[0]) == ([None], 7)


def test_a_lent_handle_is_as_good_as_any(registry: Registry) -> None:
    context, queue = make("ur_context_handle_t"), make("ur_queue_handle_t")
    call = entry(registry, "urContextGetNativeHandle", lambda hContext: 7)
    handle = registry.show(context)
    assert call(handle, ffi.new("uintptr_t *")) == "SUCCESS"
    assert entry(registry, "urQueueFinish", lambda: None)(handle) == "INVALID_QUEUE"
    assert (
        entry(registry, "urContextCreate", lambda phDevices: context)(
            1, ffi.new("uintptr_t[]", [registry.show(queue)]), ffi.NULL, ffi.new("uintptr_t *")
        )
        == "INVALID_DEVICE"
    )


class Context(ContextObject, Object):
    """A context of one device, or of all."""

    type = "ur_context_handle_t"

    def __init__(self, *devices: Object) -> None:
        self.devices = devices


@table("name", {f.name: f for f in FUNCTIONS.values() if find_context(f)})
def test_a_device_of_another_context_is_refused(name: str) -> None:
    call = Call(FUNCTIONS[name], Registry(TABLE))
    call.registry.checks_devices = True
    arguments, parameters = call.good(), call.parameters
    given = arguments["hDevice"] if "hDevice" in parameters else arguments["phDevices"][1]
    devices = call.registry.list_owned("ur_device_handle_t")
    owner = find_context(FUNCTIONS[name]).partition(".")[0]
    for context, code in (
        (Context(*devices.values()), "SUCCESS"),
        (Context(*(one for handle, one in devices.items() if handle != given)), "INVALID_DEVICE"),
    ):
        thing: Any = context
        if owner != "hContext":
            thing = make(parameters[owner].type)
            thing.context = context
        arguments[owner] = call.registry.give(thing)
        call.entry = compile_entry(
            call.registry,
            call.function,
            call.body,
            lambda error, routine: getattr(error, "value", -1),
        )
        assert call(arguments) == code
    if "hDevice" in parameters and "optional" in parameters["hDevice"].words:
        assert call({**arguments, "hDevice": 0}) == "SUCCESS"


def test_objects_that_are_false_are_objects(registry: Registry) -> None:
    class Empty(Object):
        type = "ur_event_handle_t"

        def __len__(self) -> int:
            return 0

    things = [Empty(), Empty()]
    seen: list[Any] = []
    registry.give(things[0])
    registry.show(things[1])
    handles = ffi.new("uintptr_t[]", [thing.handle for thing in things])
    assert (
        entry(registry, "urEventWait", lambda phEventWaitList: seen.extend(phEventWaitList))(
            2, handles
        )
        == "SUCCESS"
    )
    assert seen == things
    assert entry(registry, "urEventRetain", lambda hEvent: None)(things[0].handle) == "SUCCESS"


@pytest.mark.parametrize("wanted", [True, False])
def test_an_optional_handle_that_is_named_says_whether_it_is_wanted(
    registry: Registry, wanted: bool
) -> None:
    seen: list[Any] = []

    def body(phEvent: bool) -> Object | None:
        seen.append(phEvent)
        return make("ur_event_handle_t") if phEvent else None

    event = ffi.new("uintptr_t *") if wanted else ffi.NULL
    given = registry.give(make("ur_queue_handle_t")), 0, ffi.NULL, event
    assert entry(registry, "urEnqueueEventsWait", body)(*given) == "SUCCESS"
    assert seen == [wanted]
    assert len(registry.list_owned("ur_event_handle_t")) == wanted


def test_other_outputs_that_are_named_are_handed_over(registry: Registry) -> None:
    def body(phProgram: Any) -> None:
        phProgram[0] = 77

    program = ffi.new("uintptr_t *")
    context = registry.give(make("ur_context_handle_t"))
    one = registry.give(make("ur_program_handle_t"))
    call = entry(registry, "urProgramLink", body)
    assert call(context, 1, ffi.new("uintptr_t[]", [one]), ffi.NULL, program) == "SUCCESS"
    assert program[0] == 77
    given = context, 1, ffi.new("uintptr_t[]", [one]), ffi.NULL, ffi.NULL
    assert call(*given) == "INVALID_NULL_POINTER"


def test_arguments_of_a_kernel_may_be_there_without_a_count(registry: Registry) -> None:
    """libsycl does that for every kernel without arguments."""
    call = Call(FUNCTIONS["urEnqueueKernelLaunchWithArgsExp"])
    arguments = call.good()
    arguments["numArgs"] = 0
    assert call(arguments) == "SUCCESS"


def test_a_char_pointer_that_is_returned_is_good_for_ever(registry: Registry) -> None:
    call = entry(
        registry, "urPlatformGetBackendOption", lambda pFrontendOption: pFrontendOption.upper()
    )
    platform = registry.give(make("ur_platform_handle_t"))
    first, second = ffi.new("char **"), ffi.new("char **")
    for option in (first, second):
        assert call(platform, ffi.new("char[]", b"-o1"), option) == "SUCCESS"
    assert ffi.string(first[0]) == b"-O1" and first[0] == second[0]


def test_bytes_that_are_no_text_do_not_hurt(registry: Registry) -> None:
    seen = []
    call = entry(registry, "urProgramBuild", lambda pOptions: seen.append(pOptions))
    handles = registry.give(make("ur_context_handle_t")), registry.give(make("ur_program_handle_t"))
    assert call(*handles, ffi.new("char[]", b"\xff")) == "SUCCESS"
    assert seen == ["\ufffd"]


def test_lists_say_how_many_there_are_and_give_as_many_as_there_is_room_for(
    registry: Registry,
) -> None:
    things = [make("ur_platform_handle_t") for _ in range(3)]
    call = entry(registry, "urPlatformGet", lambda: things)
    adapter = registry.give(make("ur_adapter_handle_t"))
    count = ffi.new("uint32_t *")
    room = ffi.new("uintptr_t[4]")
    assert call(adapter, 0, ffi.NULL, count) == "SUCCESS" and count[0] == 3
    assert call(adapter, 5, ffi.NULL, count) == "SUCCESS"
    assert call(adapter, 4, room, ffi.NULL) == "SUCCESS" and list(room) == [
        *(thing.handle for thing in things),
        0,
    ]
    assert call(adapter, 0, ffi.NULL, ffi.NULL) == "INVALID_VALUE"
    assert call(adapter, 0, room, count) == "INVALID_SIZE"


# queries


@pytest.fixture
def query(registry: Registry) -> Callable[..., str]:
    """urQueueGetInfo of a queue that answers one property, and none that is called
    UR_QUEUE_INFO_SIZE."""
    answers = {UR["UR_QUEUE_INFO_REFERENCE_COUNT"]: 5}
    call = entry(registry, "urQueueGetInfo", lambda propName: answers.get(propName))
    queue = registry.give(make("ur_queue_handle_t"))
    return lambda *arguments: call(queue, *arguments)


def test_a_query_writes_the_value_and_its_size(query: Callable[..., str]) -> None:
    value, size = ffi.new("uint32_t[2]", [9, 9]), ffi.new("size_t *")
    name, address = UR["UR_QUEUE_INFO_REFERENCE_COUNT"], int(ffi.cast("uintptr_t", value))
    assert query(name, 8, address, size) == "SUCCESS" and (list(value), size[0]) == ([5, 9], 4)
    assert query(name, 4, address, ffi.NULL) == "SUCCESS"
    size[0] = 0
    assert query(name, 0, 0, size) == "SUCCESS" and size[0] == 4


def test_a_query_that_is_wrong(query: Callable[..., str]) -> None:
    value, size = ffi.new("uint32_t[2]", [9, 9]), ffi.new("size_t *")
    name, address = UR["UR_QUEUE_INFO_REFERENCE_COUNT"], int(ffi.cast("uintptr_t", value))
    assert query(name, 0, address, size) == "INVALID_SIZE"
    assert query(name, 3, address, size) == "INVALID_SIZE"
    assert query(name, 4, 0, size) == "INVALID_NULL_POINTER"
    assert query(name, 0, 0, ffi.NULL) == "INVALID_NULL_POINTER"
    assert query(UR["UR_QUEUE_INFO_SIZE"], 0, 0, size) == "UNSUPPORTED_ENUMERATION"
    assert query(12345, 0, 0, size) == "INVALID_ENUMERATION"
    assert list(value) == [9, 9]


def test_an_object_that_is_the_answer_is_not_given(registry: Registry) -> None:
    context, value = make("ur_context_handle_t"), ffi.new("uintptr_t *")
    call = entry(registry, "urQueueGetInfo", lambda: context)
    queue = registry.give(make("ur_queue_handle_t"))
    given = queue, UR["UR_QUEUE_INFO_CONTEXT"], 8, int(ffi.cast("uintptr_t", value)), ffi.NULL
    assert call(*given) == "SUCCESS"
    assert (value[0], context.references) == (context.handle, 0) and context.handle


def test_binaries_go_where_the_caller_wants_them(registry: Registry) -> None:
    call = entry(registry, "urProgramGetInfo", lambda: [b"one", b"three"])
    program, size = registry.give(make("ur_program_handle_t")), ffi.new("size_t *")
    first, name = ffi.new("char[8]"), UR["UR_PROGRAM_INFO_BINARIES"]
    into = ffi.new("char *[2]", [first, ffi.NULL])
    assert call(program, name, 0, 0, size) == "SUCCESS" and size[0] == 16
    assert call(program, name, 8, int(ffi.cast("uintptr_t", into)), ffi.NULL) == "INVALID_SIZE"
    assert call(program, name, 16, int(ffi.cast("uintptr_t", into)), ffi.NULL) == "SUCCESS"
    assert ffi.buffer(first)[:] == b"one" + bytes(5)


@given(st.integers(0, 2 * BYTES), st.booleans(), st.booleans(), st.binary(max_size=BYTES))
def test_a_query_never_writes_more_than_there_is_room_for(
    size: int, has_value: bool, has_size: bool, answer: bytes
) -> None:
    registry = Registry(TABLE)
    call = entry(registry, "urProgramGetInfo", lambda: answer)
    program = registry.give(make("ur_program_handle_t"))
    room = ffi.new(f"char[{3 * BYTES}]", b"\xee" * 3 * BYTES)
    written = ffi.new("size_t *")
    address = int(ffi.cast("uintptr_t", room)) if has_value else 0
    code = call(program, UR["UR_PROGRAM_INFO_IL"], size, address, written if has_size else ffi.NULL)
    untouched = answer if code == "SUCCESS" and has_value else b""
    assert ffi.buffer(room)[:] == untouched + b"\xee" * (3 * BYTES - len(untouched))
    fits = (not has_value and not size and has_size) or (has_value and size >= max(len(answer), 1))
    assert (code == "SUCCESS") == fits
    assert written[0] == (len(answer) if fits and has_size else 0)


# errors


def test_what_a_body_raises_goes_to_fail(registry: Registry) -> None:
    errors = []
    queue = registry.give(make("ur_queue_handle_t"))

    def body(hQueue: Object) -> None:
        raise KeyboardInterrupt

    call = entry(
        registry, "urQueueFinish", body, lambda error, routine: errors.append((error, routine)) or 7
    )
    assert call(queue) == CODES[7]
    assert isinstance(errors[0][0], KeyboardInterrupt) and errors[0][1] == "urQueueFinish"


@table("name", [f.name for f in FUNCTIONS.values() if not is_query(f) and Call(f).outputs()])
def test_a_function_that_returns_nothing_is_told_what_it_has_to_return(name: str) -> None:
    call = Call(FUNCTIONS[name])
    call._body = lambda seen: None
    call.__post_init__()
    assert call(call.good()) == "UNKNOWN"
    (error,) = call.failed
    start = f"{name} returned None; it has to return " + "a tuple: " * (len(call.outputs()) > 1)
    assert str(error).startswith(start)
    assert re.findall(r" for (\w+)", str(error)) == [p.name for p in call.outputs()]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        (
            "urQueueCreate",
            3,
            "urQueueCreate returned 3; it has to return an object for phQueue ('int' object",
        ),
        (
            "urDeviceGet",
            3,
            "urDeviceGet returned 3; it has to return a list of objects for phDevices (it "
            "is not a list)",
        ),
        (
            "urQueueGetNativeHandle",
            "x",
            "urQueueGetNativeHandle returned 'x'; it has to return a number for phNativeQueue (",
        ),
        (
            "urAdapterGetLastError",
            ("x",),
            "urAdapterGetLastError returned ('x',); it has to return a tuple: a str for "
            "ppMessage, a number",
        ),
        (
            "urAdapterGetLastError",
            (None, 1),
            "urAdapterGetLastError returned (None, 1); it has to return a tuple: a str",
        ),
    ],
)
def test_what_does_not_fit_is_quoted(name: str, value: object, says: str) -> None:
    call = Call(FUNCTIONS[name])
    call._body = lambda seen: value
    call.__post_init__()
    assert call(call.good()) == "UNKNOWN" and str(call.failed[0]).startswith(says)


def test_an_error_inside_a_function_is_its_own(registry: Registry) -> None:
    call = entry(registry, "urEventGetNativeHandle", lambda hEvent: len(hEvent))
    with pytest.raises(TypeError, match="has no len"):
        call(registry.give(make("ur_event_handle_t")), ffi.new("uintptr_t *"))


def test_failure_is_an_error_with_a_name() -> None:
    error = failure("INVALID_VALUE", "because")
    assert error.value == find_code("UR_RESULT_ERROR_INVALID_VALUE") == find_code(
        "INVALID_VALUE"
    ) and "because" in str(error)
    with pytest.raises(KeyError):
        failure("NO_SUCH_CODE")


def test_a_parameter_that_is_not_there_is_an_error() -> None:
    with pytest.raises(TypeError, match="urQueueFinish has no parameter queue; it has hQueue"):
        check_parameters(FUNCTIONS["urQueueFinish"], lambda queue: None)
