"""Binding of Unified Runtime adapters: layouts, what is missing, hostile tables, unbinding."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
from helpers.bindings import (
    CODES,
    LAYOUTS,
    OLDEST,
    UNINITIALIZED,
    UNSUPPORTED,
    adapter,
    answer,
    implemented,
    names_of,
    own_answer,
    plugin,
    refusal,
)
from helpers.support import FakePlugin, RunPython
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fairlead.loader.base import layers
from fairlead.loader.base.errors import FairleadError
from fairlead.loader.base.query import query, query_handles
from fairlead.loader.ur.abi import UR, URError, check
from fairlead.loader.ur.adapt import ADAPTATIONS
from fairlead.loader.ur.binding import BindError, find_layout, unbind


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_function_of_every_layout_is_where_its_name_says(
    fake_plugin: FakePlugin, layout: str
) -> None:
    """The fake's functions answer with their own number, unless they are among those that really do
    something."""
    binding = adapter(fake_plugin(layout=LAYOUTS.index(layout) + 1))
    assert (binding.layout, binding.version) == (layout, "0.12")
    adapted = implemented(binding) - set(names_of(layout))
    assert (
        implemented(binding)
        == set(names_of(layout)) | adapted
        == set(UR.functions) - binding.missing
    )
    assert adapted <= {adaptation.function for adaptation in ADAPTATIONS}
    real = ("urAdapter", "urPlatformGet", "urDevice", "urContext", "urQueue")
    for name in names_of(layout):
        if not name.startswith(real):
            assert answer(binding, name) == own_answer(UR, name), name


def test_the_newest_layout_needs_no_remark_and_an_older_one_has_one(
    fake_plugin: FakePlugin,
) -> None:
    assert adapter(fake_plugin()).notes == ()
    (note,) = adapter(fake_plugin(layout=OLDEST)).notes
    assert note == (
        f"its tables have the layout of {LAYOUTS[-1]}; fairlead calls it through one of "
        f"{LAYOUTS[0]}"
    )


def test_no_slot_is_null(fake_plugin: FakePlugin) -> None:
    for knobs in ({}, {"layout": OLDEST}, {"fill": 0}, {"no_kernel": 1}):
        table = adapter(fake_plugin(**knobs)).table
        assert all(table.get_pointer(slot) for slot in range(len(UR.slots)))


def test_a_layout_can_be_asked_for(fake_plugin: FakePlugin) -> None:
    assert adapter(fake_plugin(), LAYOUTS[0]).layout == LAYOUTS[0]
    assert adapter(fake_plugin(layout=OLDEST), LAYOUTS[-1]).layout == LAYOUTS[-1]


def test_an_adapter_of_another_layout_than_the_one_asked_for_is_refused(
    fake_plugin: FakePlugin,
) -> None:
    text = refusal(fake_plugin(layout=OLDEST), "2026.2")
    assert "its tables have the layout of 2025.3, not that of 2026.2" in text
    assert "remedy: use the adapter of release 2026.2" in text


def test_a_retired_function_of_an_old_adapter_still_works(fake_plugin: FakePlugin) -> None:
    assert answer(adapter(fake_plugin(layout=OLDEST)), "urKernelSetArgLocal") == own_answer(
        UR, "urKernelSetArgLocal"
    )
    newest = adapter(fake_plugin())
    assert newest.table.urKernelSetArgLocal(None, 0, 8, None) == UNSUPPORTED
    assert "urKernelSetArgLocal" in newest.missing


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_lengths_of_a_layout_are_that_layout_exactly(name: str) -> None:
    assert find_layout(
        {table: len(functions) for table, functions in UR.layouts[name].items()}
    ) == (name, True)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data(), st.sampled_from(LAYOUTS))
def test_what_is_cut_off_never_puts_a_function_in_another_s_place(
    data: st.DataObject, name: str
) -> None:
    """An adapter with missing functions is bound as what it is, or refused, unless every table
    looks like another layout."""
    tables = UR.layouts[name]
    cut = data.draw(st.sets(st.sampled_from(sorted(tables)), max_size=6))
    lengths = {
        t: data.draw(st.integers(0, len(tables[t])), label=t) if t in cut else len(tables[t])
        for t in tables
    }
    given = {table: length for table, length in lengths.items() if length}
    others = [UR.layouts[other] for other in LAYOUTS if other != name]
    assume(
        not any(
            all(len(other.get(table, ())) == length for table, length in given.items())
            for other in others
        )
    )
    try:
        found, exact = find_layout(lengths)
    except BindError as refused:
        assert "cannot be told" in refused.message
        return
    assert not exact or found == name
    for table, length in lengths.items():
        assert UR.layouts[found].get(table, ())[:length] == tables[table][:length]


@given(st.data(), st.sampled_from(LAYOUTS), st.integers(1, 40))
def test_a_table_that_is_longer_than_any_known_one_is_refused_by_name(
    data: st.DataObject, name: str, more: int
) -> None:
    lengths = {table: len(functions) for table, functions in UR.layouts[name].items()}
    table = data.draw(st.sampled_from(sorted(lengths)))
    lengths[table] = max(len(tables.get(table, ())) for tables in UR.layouts.values()) + more
    with pytest.raises(BindError, match=f"{table} has {lengths[table]} entries") as caught:
        find_layout(lengths)
    assert caught.value.code == "UR_RESULT_ERROR_UNSUPPORTED_VERSION"


def test_tables_that_are_missing_leave_the_layout_as_it_is() -> None:
    for name in LAYOUTS:
        lengths = {
            t: len(f)
            for t, f in UR.layouts[name].items()
            if t not in ("MemoryExportExp", "VirtualMem", "UsmP2PExp")
        }
        assert find_layout(lengths) == (name, False)


def test_an_adapter_of_no_more_than_the_tables_that_never_changed_is_taken_for_the_newest() -> None:
    assert find_layout({"Adapter": 7, "Platform": 6, "Device": 9}) == (LAYOUTS[0], False)


# Unified Runtime: what is missing


def test_a_null_entry_answers_unsupported_feature(fake_plugin: FakePlugin) -> None:
    binding = adapter(fake_plugin(null_entry="urQueueFinish"))
    assert binding.table.urQueueFinish(None) == UNSUPPORTED
    assert binding.missing - set(UR.functions).difference(names_of(LAYOUTS[0])) == {"urQueueFinish"}


def test_a_missing_table_answers_uninitialized(fake_plugin: FakePlugin) -> None:
    binding = adapter(fake_plugin(no_usm=1))
    assert binding.table.urUSMFree(None, None) == UNINITIALIZED
    assert binding.missing >= {name for name in UR.layouts[LAYOUTS[0]]["USM"] if name}
    assert binding.notes == (
        f"its tables are not complete; what there is fits the layout of {LAYOUTS[0]}",
    )


def test_a_table_that_came_with_a_later_layout_answers_uninitialized(
    fake_plugin: FakePlugin,
) -> None:
    binding = adapter(fake_plugin(layout=OLDEST))
    assert answer(binding, "urGraphCreateExp") == UNINITIALIZED
    assert answer(binding, "urDeviceWaitExp") == UNINITIALIZED
    assert answer(binding, "urKernelGetSuggestedLocalWorkSizeWithArgs") == UNSUPPORTED, (
        "the table is there, the function is not"
    )


def test_a_table_that_is_shorter_is_bound_as_far_as_its_order_is_certain(
    fake_plugin: FakePlugin,
) -> None:
    binding = adapter(fake_plugin(table="USM", written_of_table="length/2"))
    names = UR.layouts[LAYOUTS[0]]["USM"]
    for index, name in enumerate(names):
        assert name and answer(binding, name) == (
            own_answer(UR, name) if index < len(names) // 2 else UNSUPPORTED
        )


# Unified Runtime: hostile


_NO_ADAPTER_GET = "it has no urAdapterGet (urGetAdapterProcAddrTable gives none)"
#: What the fake does, and what is said of it.
REFUSALS: dict[str, tuple[Any, ...]] = {
    "half of each table": ({"written": "length/2"}, "its tables are not complete"),
    "another order": (
        {"table": "Enqueue", "written_of_table": "length/2"},
        "which functions are in Enqueue cannot be told from its 12 entries",
    ),
    "no adapter": (
        {"exports": -1},
        "it exports no urGet…ProcAddrTable function, so it is not a Unified Runtime adapter",
        "libur_adapter_",
    ),
    "no such table": ({"no_adapter": 1}, _NO_ADAPTER_GET),
    "NULL entries": ({"nulls": 1}, _NO_ADAPTER_GET),
    "a NULL entry": ({"null_entry": "urAdapterGet"}, _NO_ADAPTER_GET),
    "nothing written": ({"written": 0}, _NO_ADAPTER_GET),
    "an error": (
        {"table": "Queue", "getter_error": "UR_RESULT_ERROR_OUT_OF_RESOURCES"},
        "urGetQueueProcAddrTable [UR_RESULT_ERROR_OUT_OF_RESOURCES]: it refuses to fill its table "
        "Queue: ",
    ),
    "an unknown code": (
        {"getter_error": 77777},
        "[UR_RESULT_77777]: it refuses to fill its table Kernel: The function returned a code "
        "that Unified Runtime does not define.",
    ),
    "another version": (
        {"version": "UR_API_VERSION_0_11"},
        "urGetAdapterProcAddrTable [UR_RESULT_ERROR_UNSUPPORTED_VERSION]: it refuses to fill its "
        "table Adapter",
        "remedy: install an adapter of Unified Runtime 0.12",
    ),
    "one too many": (
        {"table": "Queue", "written_of_table": "length+1"},
        "its tables have a layout that is not known: compared with 2026.2, Queue has 9 entries, "
        "not 8",
    ),
    "far too many": (
        {"table": "Enqueue", "written_of_table": 600},
        "Enqueue has 600 entries, not 25",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSALS)
def test_it_is_refused(fake_plugin: FakePlugin, case: str) -> None:
    knobs, *parts = REFUSALS[case]
    text = refusal(fake_plugin(**knobs))
    assert [part for part in parts if part not in text] == [], text


def test_a_table_beyond_all_room(fake_plugin: FakePlugin) -> None:
    text = refusal(fake_plugin(table="Event", written_of_table=1024))
    assert text.startswith("urGetEventProcAddrTable: it wrote beyond the end of the table")


def test_one_that_writes_nothing_where_a_table_should_be_has_no_function_there(
    fake_plugin: FakePlugin,
) -> None:
    binding = adapter(fake_plugin(table="USM", written_of_table=0))
    assert answer(binding, "urUSMFree") == UNSUPPORTED


def test_an_entry_that_leads_nowhere_is_bound_and_crashes_only_its_caller(
    fake_plugin: FakePlugin, run_python: RunPython
) -> None:
    code = """
import sys
from fairlead.loader.ur.binding import bind_adapter
from fairlead.loader.base.library import open_library
binding = bind_adapter(open_library(sys.argv[1]))
print("bound", flush=True)
binding.table.urQueueFinish(None)
"""
    output = run_python(code, str(fake_plugin(wild="urQueueFinish")), check=False)
    assert (output.out, output.code) == ("bound\n", -11)


def test_counts_and_sizes_that_cannot_be_are_errors(fake_plugin: FakePlugin) -> None:
    table = adapter(fake_plugin(count="(1 << 20)")).table
    (first,) = query_handles(table.urAdapterGet, "urAdapterGet", check)
    with pytest.raises(FairleadError, match="it reports 1048576 handles, which is impossible"):
        query_handles(table.urPlatformGet, "urPlatformGet", check, first)
    for size in ("(size_t)-1", "((size_t)1<<40)"):
        table = adapter(fake_plugin(name_size=size)).table
        (first,) = query_handles(table.urAdapterGet, "urAdapterGet", check)
        (platform,) = query_handles(table.urPlatformGet, "urPlatformGet", check, first)
        with pytest.raises(FairleadError, match="which is impossible"):
            query(
                table.urPlatformGetInfo,
                "urPlatformGetInfo",
                check,
                platform,
                UR["UR_PLATFORM_INFO_NAME"],
            )


def test_fewer_platforms_than_were_said(fake_plugin: FakePlugin) -> None:
    table = adapter(fake_plugin(count=5, platforms=2)).table
    (first,) = query_handles(table.urAdapterGet, "urAdapterGet", check)
    assert len(query_handles(table.urPlatformGet, "urPlatformGet", check, first)) == 2


def test_a_function_s_own_error_carries_its_name(fake_plugin: FakePlugin) -> None:
    table = adapter(fake_plugin(adapter_error="UR_RESULT_ERROR_DEVICE_LOST")).table
    with pytest.raises(URError) as caught:
        query_handles(table.urAdapterGet, "urAdapterGet", check)
    assert str(caught.value).startswith("urAdapterGet [UR_RESULT_ERROR_DEVICE_LOST]: ")


# Unbinding


def test_after_unbind_every_function_answers_uninitialized(fake_plugin: FakePlugin) -> None:
    binding = adapter(fake_plugin())
    count = ctypes.c_uint32()
    assert binding.table.urAdapterGet(0, None, ctypes.byref(count)) == 0 and count.value == 1
    unbind(binding)
    assert binding.table.urAdapterGet(0, None, ctypes.byref(count)) == UNINITIALIZED, (
        "it was called before"
    )
    assert {answer(binding, function.name) for function in UR.slots} == {UNINITIALIZED}


def test_after_unbind_calls_through_a_layer_answer_uninitialized(fake_plugin: FakePlugin) -> None:
    binding = adapter(fake_plugin())
    layer = layers.Layer(UR, binding.table.address)
    binding.table.push(layer)
    assert binding.table.urQueueFinish(1) == 0
    unbind(binding)
    assert binding.table.urQueueFinish(1) == UNINITIALIZED
    binding.table.remove(layer)
    layer.release()


def test_a_table_outlives_its_library(
    fake_plugin: FakePlugin, tmp_path: Path, run_python: RunPython
) -> None:
    """It runs in a process of its own, because here a variant may have been opened more than
    once."""
    code = """
import sys
from pathlib import Path
from fairlead.loader.ur.binding import bind_adapter, unbind
from fairlead.loader.base.library import open_library
library = open_library(sys.argv[1])
binding = bind_adapter(library)
print(binding.table.urQueueFinish(1))
unbind(binding)
library.close()
print(Path(sys.argv[2]).read_text().split(), sys.argv[1] in Path("/proc/self/maps").read_text())
print(binding.table.urQueueFinish(1))
"""
    log = tmp_path / "log"
    path = str(fake_plugin())
    output = run_python(code, path, str(log), env={"FAKE_LOG": str(log)})
    assert output.out.splitlines() == ["0", "['load', 'unload'] False", str(UNINITIALIZED)]


def test_unbind_of_a_plugin(fake_plugin: FakePlugin) -> None:
    binding = plugin(fake_plugin(interface=2))
    assert binding.table.piTearDown(None) == 0
    unbind(binding)
    assert binding.table.piTearDown(None) == CODES["PI_ERROR_UNINITIALIZED"]
