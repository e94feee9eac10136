"""PluginBinding: every plugin becomes a complete table, and everything else is refused with a
reason."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers.plugin_header import FIRST_ANSWER
from helpers.support import FakePlugin, RunPython
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fairlead.loader.base import layers
from fairlead.loader.base.abi import Api
from fairlead.loader.base.errors import FairleadError
from fairlead.loader.base.library import open_library
from fairlead.loader.base.query import handles, query
from fairlead.loader.pi.abi import PI
from fairlead.loader.ur.abi import UR, URError, check
from fairlead.loader.ur.adapt import ADAPTATIONS
from fairlead.loader.ur.binding import (
    BindError,
    PluginBinding,
    bind_adapter,
    bind_plugin,
    layout_of,
    unbind,
)

LAYOUTS = tuple(UR.layouts)
OLDEST = len(LAYOUTS)
CODES = {name: code for api in (UR, PI) for code, (name, _) in api.errors.items()}
UNSUPPORTED, UNINITIALIZED = (
    CODES["UR_RESULT_ERROR_UNSUPPORTED_FEATURE"],
    CODES["UR_RESULT_ERROR_UNINITIALIZED"],
)

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
    return function(binding.table.pointer(slot))()


def own_answer(api: Api, name: str) -> int:
    return FIRST_ANSWER + (api.functions[name].slot or 0)


def stubs(api: Api) -> set[int]:
    return {*layers.stubs(api, "unsupported"), *layers.stubs(api, "uninitialized")}


def implemented(binding: PluginBinding) -> set[str]:
    """The functions in whose slots no stub stands."""
    api = binding.table.api
    return {f.name for f in api.slots if binding.table.pointer(f.slot or 0) not in stubs(api)}


def names_of(layout: str) -> list[str]:
    return [name for functions in UR.layouts[layout].values() for name in functions if name]


# Unified Runtime: layouts


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
    assert (
        note
        == f"its tables have the layout of {LAYOUTS[-1]}; fairlead calls it through one of {LAYOUTS[0]}"
    )


def test_no_slot_is_null(fake_plugin: FakePlugin) -> None:
    for knobs in ({}, {"layout": OLDEST}, {"fill": 0}, {"no_kernel": 1}):
        table = adapter(fake_plugin(**knobs)).table
        assert all(table.pointer(slot) for slot in range(len(UR.slots)))


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
    assert layout_of({table: len(functions) for table, functions in UR.layouts[name].items()}) == (
        name,
        True,
    )


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
        found, exact = layout_of(lengths)
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
        layout_of(lengths)
    assert caught.value.code == "UR_RESULT_ERROR_UNSUPPORTED_VERSION"


def test_tables_that_are_missing_leave_the_layout_as_it_is() -> None:
    for name in LAYOUTS:
        lengths = {
            t: len(f)
            for t, f in UR.layouts[name].items()
            if t not in ("MemoryExportExp", "VirtualMem", "UsmP2PExp")
        }
        assert layout_of(lengths) == (name, False)


def test_an_adapter_of_no_more_than_the_tables_that_never_changed_is_taken_for_the_newest() -> None:
    assert layout_of({"Adapter": 7, "Platform": 6, "Device": 9}) == (LAYOUTS[0], False)


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


def test_a_shorter_table_whose_order_changed_between_layouts_is_refused(
    fake_plugin: FakePlugin,
) -> None:
    text = refusal(fake_plugin(table="Enqueue", written_of_table="length/2"))
    assert "which functions are in Enqueue cannot be told from its 12 entries" in text


def test_an_adapter_that_fills_half_of_each_table_is_refused(fake_plugin: FakePlugin) -> None:
    assert "its tables are not complete" in refusal(fake_plugin(written="length/2"))


# Unified Runtime: hostile


def test_a_library_that_is_no_adapter(fake_plugin: FakePlugin) -> None:
    text = refusal(fake_plugin(exports=-1))
    assert "it exports no urGet…ProcAddrTable function, so it is no Unified Runtime adapter" in text
    assert "libur_adapter_" in text


@pytest.mark.parametrize(
    "knobs", [{"no_adapter": 1}, {"nulls": 1}, {"null_entry": "urAdapterGet"}, {"written": 0}]
)
def test_an_adapter_without_urAdapterGet(fake_plugin: FakePlugin, knobs: dict[str, Any]) -> None:
    assert "it has no urAdapterGet (urGetAdapterProcAddrTable gives none)" in refusal(
        fake_plugin(**knobs)
    )


def test_a_getter_that_answers_an_error(fake_plugin: FakePlugin) -> None:
    text = refusal(fake_plugin(table="Queue", getter_error="UR_RESULT_ERROR_OUT_OF_RESOURCES"))
    assert text.startswith(
        "urGetQueueProcAddrTable [UR_RESULT_ERROR_OUT_OF_RESOURCES]: it refuses to fill its table "
        "Queue: "
    )


def test_a_getter_that_answers_a_code_that_does_not_exist(fake_plugin: FakePlugin) -> None:
    assert (
        "[UR_RESULT_77777]: it refuses to fill its table Kernel: The function returned a code "
        "that Unified Runtime does not define." in refusal(fake_plugin(getter_error=77777))
    )


def test_an_adapter_of_another_version(fake_plugin: FakePlugin) -> None:
    text = refusal(fake_plugin(version="UR_API_VERSION_0_11"))
    assert text.startswith(
        "urGetAdapterProcAddrTable [UR_RESULT_ERROR_UNSUPPORTED_VERSION]: it refuses to fill its "
        "table Adapter"
    )
    assert "remedy: install an adapter of Unified Runtime 0.12" in text


def test_a_table_that_is_one_longer_than_known(fake_plugin: FakePlugin) -> None:
    text = refusal(fake_plugin(table="Queue", written_of_table="length+1"))
    assert (
        "its tables have a layout that is not known: compared with 2026.2, Queue has 9 entries, "
        "not 8" in text
    )


def test_a_table_that_is_far_too_long(fake_plugin: FakePlugin) -> None:
    assert "Enqueue has 600 entries, not 25" in refusal(
        fake_plugin(table="Enqueue", written_of_table=600)
    )


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
    (first,) = handles(table.urAdapterGet, "urAdapterGet", check)
    with pytest.raises(FairleadError, match="it reports 1048576 handles, which is impossible"):
        handles(table.urPlatformGet, "urPlatformGet", check, first)
    for size in ("(size_t)-1", "((size_t)1<<40)"):
        table = adapter(fake_plugin(name_size=size)).table
        (first,) = handles(table.urAdapterGet, "urAdapterGet", check)
        (platform,) = handles(table.urPlatformGet, "urPlatformGet", check, first)
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
    (first,) = handles(table.urAdapterGet, "urAdapterGet", check)
    assert len(handles(table.urPlatformGet, "urPlatformGet", check, first)) == 2


def test_a_function_s_own_error_carries_its_name(fake_plugin: FakePlugin) -> None:
    table = adapter(fake_plugin(adapter_error="UR_RESULT_ERROR_DEVICE_LOST")).table
    with pytest.raises(URError) as caught:
        handles(table.urAdapterGet, "urAdapterGet", check)
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


# PI


def is_own(binding: PluginBinding, names: set[str]) -> None:
    """Each of these functions is the fake's own of that name."""
    assert implemented(binding) == names == {f.name for f in PI.slots} - binding.missing
    for name in names:
        if not name.startswith(("piPlatform", "piDevice", "piContext", "piTearDown")):
            assert answer(binding, name) == own_answer(PI, name), name


ALL_PI = {function.name for function in PI.slots}


def test_a_plugin_of_the_known_version(fake_plugin: FakePlugin) -> None:
    binding = plugin(fake_plugin(interface=2))
    assert (binding.version, binding.layout, binding.notes) == ("15.47.1", "", ())
    is_own(binding, ALL_PI)


def test_a_plugin_of_the_known_version_that_exports_nothing_else(fake_plugin: FakePlugin) -> None:
    binding = plugin(fake_plugin(interface=2, exports=0))
    assert binding.notes == ()
    is_own(binding, ALL_PI)


def test_a_plugin_of_another_order_is_bound_by_its_exported_names(fake_plugin: FakePlugin) -> None:
    binding = plugin(fake_plugin(interface=2, plugin_version='"15.49.1"', shifted=3))
    assert binding.version == "15.49.1"
    (note,) = binding.notes
    assert note.startswith("its table has another order than that of PI 15.47 (") and note.endswith(
        "bound by exported names"
    )
    is_own(binding, ALL_PI)


def test_a_plugin_of_another_order_that_says_it_is_of_the_known_version(
    fake_plugin: FakePlugin,
) -> None:
    is_own(plugin(fake_plugin(interface=2, shifted=3)), ALL_PI)


def test_what_another_version_does_not_export_is_not_guessed(fake_plugin: FakePlugin) -> None:
    """What it exports is in the known places all the same, which says nothing about the rest."""
    binding = plugin(fake_plugin(interface=2, plugin_version='"15.49.1"', shifted=3, exports=1))
    assert binding.notes == (
        "the order of the functions of PI 15.49.1 is not known: bound by exported names",
    )
    assert {"piPlatformsGet", "piDevicesGet", "piTearDown"} <= implemented(binding) < ALL_PI
    assert answer(binding, "piextWaitExternalSemaphore") == CODES["PI_ERROR_UNSUPPORTED_FEATURE"]


def test_another_version_without_exported_names_is_refused(fake_plugin: FakePlugin) -> None:
    text = plugin_refusal(fake_plugin(interface=2, plugin_version='"15.49.1"', exports=0))
    assert (
        "it speaks PI 15.49.1 and exports none of its functions, so that their order in its table "
        "is not known" in text
    )


@pytest.mark.parametrize("version", ["11.15.1", "14.30", "5.7"])
def test_an_older_major_version_is_refused(fake_plugin: FakePlugin, version: str) -> None:
    text = plugin_refusal(fake_plugin(interface=2, plugin_version=f'"{version}"'))
    assert f"PI {version}, which differs from 15.47" in text or "it refuses PI 15.47" in text
    assert "remedy: install a plugin of PI 15" in text


def test_a_later_major_version_refuses_us(fake_plugin: FakePlugin) -> None:
    text = plugin_refusal(fake_plugin(interface=2, plugin_version='"16.0"'))
    assert text.startswith("piPluginInit [PI_ERROR_INVALID_OPERATION]: it refuses PI 15.47: ")


def test_a_plugin_that_gives_no_version(fake_plugin: FakePlugin) -> None:
    assert "it speaks PI of no version" in plugin_refusal(
        fake_plugin(interface=2, plugin_version='""')
    )


def test_a_version_that_does_not_end_is_cut_where_its_room_ends(fake_plugin: FakePlugin) -> None:
    binding = plugin(fake_plugin(interface=2, plugin_version='"15.47.12345678901234567890"'))
    assert binding.version == "15.47.12345678901234"


def test_a_plugin_that_answers_an_error(fake_plugin: FakePlugin) -> None:
    text = plugin_refusal(fake_plugin(interface=2, getter_error=-12345))
    assert text.startswith(
        "piPluginInit [PI_ERROR_-12345]: it refuses PI 15.47: The function returned a code that "
        "PI does not define."
    )


def test_a_library_that_is_no_plugin(fake_plugin: FakePlugin) -> None:
    assert "it does not export piPluginInit, so it is no PI plugin" in plugin_refusal(
        fake_plugin(interface=2, exports=-1)
    )
    assert "it does not export piPluginInit" in plugin_refusal(fake_plugin()), (
        "an adapter is no plugin"
    )
    assert "it is no Unified Runtime adapter" in refusal(fake_plugin(interface=2)), (
        "a plugin is no adapter"
    )


@pytest.mark.parametrize("knobs", [{"nulls": 1}, {"written": 0}])
def test_a_plugin_that_leaves_its_table_empty(
    fake_plugin: FakePlugin, knobs: dict[str, Any]
) -> None:
    assert "piPluginInit: it left its table empty" in plugin_refusal(
        fake_plugin(interface=2, **knobs)
    )


def test_a_plugin_without_piPlatformsGet(fake_plugin: FakePlugin) -> None:
    assert "it has no piPlatformsGet" in plugin_refusal(
        fake_plugin(interface=2, exports=0, null_entry="piPlatformsGet")
    )


def test_half_of_a_plugin_s_table_is_completed_by_exported_names(fake_plugin: FakePlugin) -> None:
    is_own(plugin(fake_plugin(interface=2, written="length/2")), ALL_PI)
    half = {function.name for function in itertools.islice(PI.slots, len(PI.slots) // 2)}
    is_own(plugin(fake_plugin(interface=2, written="length/2", exports=0)), half)


def test_a_plugin_s_null_entry_answers_unsupported_feature(fake_plugin: FakePlugin) -> None:
    binding = plugin(fake_plugin(interface=2, exports=0, null_entry="piTearDown"))
    assert binding.table.piTearDown(None) == CODES["PI_ERROR_UNSUPPORTED_FEATURE"]
    assert binding.missing == {"piTearDown"}


def test_a_plugin_s_table_that_is_far_too_long(fake_plugin: FakePlugin) -> None:
    is_own(plugin(fake_plugin(interface=2, written=600)), ALL_PI)


# The real ones


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("ur-then/libur_adapter_opencl.so.0", "2025.3"),
        ("ur-then/libur_adapter_level_zero.so.0", "2025.3"),
        ("ur-then/libur_adapter_level_zero_v2.so.0", "2025.3"),
        ("ur-now/libur_adapter_level_zero.so.0", "2026.2"),
        ("ur-now/libur_adapter_level_zero_v2.so.0", "2026.2"),
    ],
)
def test_a_real_adapter_has_the_layout_of_its_release(
    real_plugins: Path, run_python: RunPython, name: str, layout: str
) -> None:
    code = """
binding = bind_adapter(library)
table, count = binding.table, ctypes.c_uint32()
print(binding.layout, [note for note in binding.notes if "complete" in note])
result = table.urAdapterGet(0, None, ctypes.byref(count))
platforms = 0
if count.value:
    handles = (ctypes.c_void_p * count.value)()
    assert table.urAdapterGet(count.value, handles, None) == 0
    result = table.urPlatformGet(handles[0], 0, None, ctypes.byref(count))
print(result, count.value)
try:
    bind_adapter(library, layout="2026.1")
except Exception as refused:
    print(type(refused).__name__)
"""
    layouts, calls, error = run_python(OPEN_REAL + code, str(real_plugins / name)).out.splitlines()
    assert layouts == f"{layout} []" and error == "BindError"
    result, count = map(int, calls.split())
    if (
        "level_zero" in name
    ):  # there is no Level Zero driver in a test machine of ours that has no GPU
        assert count == 0 and result != 0 and URError.describe(result)[0] in CODES
    else:
        assert result == 0


def test_the_real_plugin(real_plugins: Path, run_python: RunPython) -> None:
    """Its table has the order of pi.abi: each entry is the function that is exported under that
    name."""
    code = """
binding = bind_plugin(library)
print(binding.version, sorted(binding.missing), binding.notes)
exported = {f.name: library.symbol(f.name) for f in binding.table.api.slots}
print(sorted(name for name, address in exported.items() if not address))
print([f.name for f in binding.table.api.slots if exported[f.name] not in (None, binding.table.pointer(f.slot))])
"""
    lines = run_python(OPEN_REAL + code, str(real_plugins / "pi/libpi_opencl.so")).out.splitlines()
    assert lines[0] == "15.47.1 [] ()"
    assert (
        lines[1]
        == "['piextEnqueueDeviceGlobalVariableRead', 'piextEnqueueDeviceGlobalVariableWrite']"
    )
    assert lines[2] == "[]"


# What a plugin does to the process


@pytest.mark.parametrize("interface", [1, 2])
def test_a_plugin_that_ends_the_process_while_it_is_bound_does_so_nowhere_else(
    fake_plugin: FakePlugin, run_python: RunPython, interface: int
) -> None:
    """Opening and enumerating are not binding: `bind_…` calls only the functions that fill
    tables."""
    code = """
import sys
from fairlead.loader.ur.binding import bind_adapter, bind_plugin
from fairlead.loader.base.library import open_library
library = open_library(sys.argv[1])
print("opened", flush=True)
bind_adapter(library) if sys.argv[2] == "1" else bind_plugin(library)
print("bound", flush=True)
"""
    for knobs, out, end in (
        ({"at_load": "_exit(3)"}, "", 3),
        ({"at_init": "abort()"}, "opened\n", -6),
        (
            {"at_list": "abort()", "at_devices": "abort()", "at_teardown": "abort()"},
            "opened\nbound\n",
            0,
        ),
    ):
        output = run_python(
            code, str(fake_plugin(interface=interface, **knobs)), str(interface), check=False
        )
        assert (output.out, output.code) == (out, end)


@pytest.mark.parametrize(
    ("interface", "api", "names"),
    [
        (1, UR, ("urPlatformGet", "urDeviceGet", "urDevicePartition", "urDeviceGetInfo")),
        (2, PI, ("piPlatformsGet", "piDevicesGet", "piDevicePartition", "piDeviceGetInfo")),
    ],
)
def test_platforms_devices_and_parts_of_them(
    fake_plugin: FakePlugin, interface: int, api: Api, names: tuple[str, ...]
) -> None:
    path, prefix = fake_plugin(interface=interface, platforms=2, devices=3), names[0][:2].upper()
    table = (adapter(path) if api is UR else plugin(path)).table
    list_platforms, list_devices, divide, info = (getattr(table, name) for name in names)
    first = handles(table.urAdapterGet, "urAdapterGet", check) if api is UR else []
    platforms = handles(list_platforms, names[0], check, *first)
    devices = [
        handles(list_devices, names[1], check, one, api[f"{prefix}_DEVICE_TYPE_ALL"])
        for one in platforms
    ]
    assert [len(found) for found in devices] == [3, 3]
    parts = handles(divide, names[2], check, devices[1][2], (ctypes.c_ssize_t * 3)(1, 0, 0))
    parent = query(info, names[3], check, parts[0], api[f"{prefix}_DEVICE_INFO_PARENT_DEVICE"])
    assert len(parts) == 2 and int.from_bytes(parent, "little") == devices[1][2]


def test_a_getter_of_a_library_that_it_needs_is_not_its_own(
    fake_plugin: FakePlugin, tmp_path: Path
) -> None:
    """dlsym searches dependencies as well: an adapter linked with the loader would be bound to the
    loader."""
    whole = fake_plugin()
    (tmp_path / "libwhole.so").symlink_to(whole)
    source = tmp_path / "needy.c"
    source.write_text("int it(void) { return 0; }\n")
    needy = tmp_path / "libneedy.so"
    command = [
        "cc",
        "-shared",
        "-fPIC",
        str(source),
        "-o",
        str(needy),
        "-Wl,--no-as-needed",
        f"-L{tmp_path}",
        "-lwhole",
    ]
    subprocess.run([*command, f"-Wl,-rpath,{tmp_path}", f"-Wl,-rpath,{whole.parent}"], check=True)
    library = open_library(str(needy))
    assert (
        library.symbol("urGetAdapterProcAddrTable")
        and library.own_symbol("urGetAdapterProcAddrTable") is None
    )
    with pytest.raises(BindError, match="so it is no Unified Runtime adapter"):
        bind_adapter(library)
