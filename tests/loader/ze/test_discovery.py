"""Where Level Zero drivers are looked for, and why one is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.support import FakePlugin

from fairlead.loader.base.search import Place, SearchResult
from fairlead.loader.ze.discovery import ALT_DRIVERS, NAMES, find_drivers

NOWHERE = Path("/nonexistent")


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    (tmp_path / "prefix/lib").mkdir(parents=True)
    return tmp_path / "prefix"


def search(prefix: Path, own: Path = NOWHERE, **environ: str) -> SearchResult:
    return find_drivers(environ, prefix=str(prefix), own=str(own))


def state_of(found: SearchResult, path: Path | str) -> str:
    return next(place.state for place in found.places if place.path == str(path))


def test_nothing_is_found_and_every_place_is_told(prefix: Path) -> None:
    found = search(prefix)
    assert found.candidates == () and found.refusals == ()
    assert state_of(found, prefix / "lib") == "no driver"
    assert state_of(found, NOWHERE) == "does not exist"
    assert [place.found_via for place in found.places] == ["Python prefix", "system", "fairlead"]


def test_known_names_are_found_in_the_order_of_the_loader(
    prefix: Path, fake_ze: FakePlugin
) -> None:
    for name in reversed(NAMES):
        shutil.copy(fake_ze(), prefix / "lib" / name)
    found = search(prefix, own=fake_ze(name='"Own"'))
    libraries = [Path(candidate.library) for candidate in found.candidates]
    assert [library.name for library in libraries[:-1]] == list(NAMES)
    assert libraries[-1] == fake_ze(name='"Own"')
    assert [c.found_via for c in found.candidates] == [*["Python prefix"] * 4, "fairlead"]
    assert state_of(found, prefix / "lib") == "4 drivers"


def test_the_linker_s_path_is_searched_and_a_name_is_taken_once(
    prefix: Path, tmp_path: Path, fake_ze: FakePlugin
) -> None:
    (tmp_path / "other").mkdir()
    for folder in (prefix / "lib", tmp_path / "other"):
        shutil.copy(fake_ze(), folder / NAMES[0])
    shutil.copy(fake_ze(), tmp_path / "other" / NAMES[1])
    found = search(prefix, LD_LIBRARY_PATH=f"{tmp_path / 'other'}:{tmp_path / 'none'}")
    assert [c.library for c in found.candidates] == [
        str(prefix / "lib" / NAMES[0]),
        str(tmp_path / "other" / NAMES[1]),
    ]
    assert state_of(found, tmp_path / "none") == "does not exist"


def test_a_file_that_is_no_library_is_refused_and_the_next_one_is_taken(
    prefix: Path, tmp_path: Path, fake_ze: FakePlugin
) -> None:
    (prefix / "lib" / NAMES[0]).write_text("no library")
    shutil.copy(fake_ze(), tmp_path / NAMES[0])
    found = search(prefix, LD_LIBRARY_PATH=str(tmp_path))
    assert [c.library for c in found.candidates] == [str(tmp_path / NAMES[0])]
    assert [refusal.what for refusal in found.refusals] == [str(prefix / "lib" / NAMES[0])]
    assert "text file" in found.refusals[0].reason


def test_alternative_drivers_replace_the_search(prefix: Path, fake_ze: FakePlugin) -> None:
    shutil.copy(fake_ze(), prefix / "lib" / NAMES[0])
    value = f"{fake_ze()}, {fake_ze(devices=2)},,/nonexistent/driver.so,libno_such_driver.so.1"
    found = search(prefix, own=fake_ze(name='"Own"'), ZE_ENABLE_ALT_DRIVERS=value)
    assert [c.library for c in found.candidates] == [
        str(fake_ze()),
        str(fake_ze(devices=2)),
        "libno_such_driver.so.1",
    ]
    assert [(refusal.what, refusal.reason) for refusal in found.refusals] == [
        (ALT_DRIVERS, f"element 3 of {value!r} is empty"),
        ("/nonexistent/driver.so", "does not exist"),
    ]
    assert all(refusal.remedy for refusal in found.refusals)
    assert [place.state for place in found.places] == [
        f"not searched: {ALT_DRIVERS} is set and replaces them"
    ], "it is said once"


def test_one_file_under_two_names_is_one_driver(
    prefix: Path, tmp_path: Path, fake_ze: FakePlugin
) -> None:
    (prefix / "lib" / NAMES[0]).symlink_to(fake_ze())
    (prefix / "lib" / NAMES[2]).symlink_to(fake_ze())
    found = search(prefix)
    assert [c.library for c in found.candidates] == [str(prefix / "lib" / NAMES[0])]
    assert "same file" in found.refusals[0].reason


def test_a_place_has_a_path_a_step_and_a_state(prefix: Path) -> None:
    for place in search(prefix).places:
        assert isinstance(place, Place) and place.path and place.found_via and place.state
