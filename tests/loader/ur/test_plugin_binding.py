"""Binding of PI plugins: versions, exported names, tables."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from helpers.bindings import CODES, answer, implemented, own_answer, plugin, plugin_refusal, refusal
from helpers.support import FakePlugin

from fairlead.loader.pi.abi import PI
from fairlead.loader.ur.binding import PluginBinding


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


#: What the fake does, and what is said of it.
REFUSALS: dict[str, tuple[Any, str]] = {
    "no known order": (
        {"plugin_version": '"15.49.1"', "exports": 0},
        "it speaks PI 15.49.1 and exports none of its functions, so that their order in its table "
        "is not known",
    ),
    "no version": ({"plugin_version": '""'}, "it speaks PI of no version"),
    "an unknown code": (
        {"getter_error": -12345},
        "piPluginInit [PI_ERROR_-12345]: it refuses PI 15.47: The function returned a code that "
        "PI does not define.",
    ),
    "NULL entries": ({"nulls": 1}, "piPluginInit: it left its table empty"),
    "nothing written": ({"written": 0}, "piPluginInit: it left its table empty"),
    "a NULL entry": ({"exports": 0, "null_entry": "piPlatformsGet"}, "it has no piPlatformsGet"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_it_is_refused(fake_plugin: FakePlugin, case: str) -> None:
    knobs, words = REFUSALS[case]
    assert words in plugin_refusal(fake_plugin(interface=2, **knobs))


@pytest.mark.parametrize("version", ["11.15.1", "14.30", "5.7"])
def test_an_older_major_version_is_refused(fake_plugin: FakePlugin, version: str) -> None:
    text = plugin_refusal(fake_plugin(interface=2, plugin_version=f'"{version}"'))
    assert f"PI {version}, which differs from 15.47" in text or "it refuses PI 15.47" in text
    assert "remedy: install a plugin of PI 15" in text


def test_a_later_major_version_refuses_us(fake_plugin: FakePlugin) -> None:
    text = plugin_refusal(fake_plugin(interface=2, plugin_version='"16.0"'))
    assert text.startswith("piPluginInit [PI_ERROR_INVALID_OPERATION]: it refuses PI 15.47: ")


def test_a_version_that_does_not_end_is_cut_where_its_room_ends(fake_plugin: FakePlugin) -> None:
    binding = plugin(fake_plugin(interface=2, plugin_version='"15.47.12345678901234567890"'))
    assert binding.version == "15.47.12345678901234"


def test_a_library_that_is_no_plugin(fake_plugin: FakePlugin) -> None:
    assert "it does not export piPluginInit, so it is not a PI plugin" in plugin_refusal(
        fake_plugin(interface=2, exports=-1)
    )
    assert "it does not export piPluginInit" in plugin_refusal(fake_plugin()), (
        "an adapter is not a plugin"
    )
    assert "it is not a Unified Runtime adapter" in refusal(fake_plugin(interface=2)), (
        "a plugin is not an adapter"
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
