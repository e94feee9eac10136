"""plugins.conf: the meaning of its lines, what follows from a name, and that no file breaks
reading."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

import pytest
from helpers.tables import table
from hypothesis import given
from hypothesis import strategies as st

from fairlead.loader.base.search import Refusal
from fairlead.loader.ur.plugin_config import (
    PluginEntry,
    deduce,
    find_shipped_config,
    map_sycl_be_names,
    read_config,
)

NAMES = st.from_regex(r"[A-Za-z0-9_.+-]{1,12}", fullmatch=True)
ENTRIES = st.builds(
    PluginEntry,
    library=NAMES,
    interface=st.sampled_from(["UR", "PI"]),
    backend=st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True),
    sycl_be=st.one_of(st.just(""), st.from_regex(r"PI_[A-Z0-9_]{1,8}", fullmatch=True)),
)


def read(directory: Path, content: str | bytes) -> list[PluginEntry | Refusal]:
    path = directory / "plugins.conf"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_config(str(path), "a test")


def only_refusal(items: list[PluginEntry | Refusal]) -> Refusal:
    """The one refusal of a file with nothing else; it must say what, why, and what to do."""
    (refusal,) = items
    assert isinstance(refusal, Refusal)
    assert refusal.what and refusal.reason and refusal.remedy and refusal.found_via == "a test"
    return refusal


# The file that ships


def test_shipped_file_names_every_adapter_and_plugin() -> None:
    entries = [
        entry
        for entry in read_config(find_shipped_config(), "shipped")
        if isinstance(entry, PluginEntry)
    ]
    backends = {"cuda", "hip", "level_zero", "native_cpu", "opencl"}
    assert len(entries) == len(read_config(find_shipped_config(), "shipped")) == 14
    assert {entry.backend for entry in entries if entry.interface == "UR"} == backends | {"offload"}
    assert {entry.backend for entry in entries if entry.interface == "PI"} == backends | {
        "esimd_emulator",
        "unknown",
    }
    assert all(
        entry.library.endswith(".so.0" if entry.interface == "UR" else ".so") for entry in entries
    )


def test_shipped_file_agrees_with_what_names_tell() -> None:
    for entry in read_config(find_shipped_config(), "shipped"):
        assert isinstance(entry, PluginEntry) and deduce(entry.library) == entry


def test_shipped_file_is_the_place_of_the_correspondence_with_sycl_be() -> None:
    names = map_sycl_be_names(read_config(find_shipped_config(), "shipped"))
    assert names["PI_OPENCL"] == "opencl" and names["PI_LEVEL_ZERO"] == "level_zero"
    assert set(names) == {f"PI_{backend.upper()}" for backend in names.values()}


def test_first_entry_of_a_sycl_be_counts() -> None:
    given = "a", "PI", "one", "PI_X"
    entries = [PluginEntry(*given), Refusal("x", "y"), PluginEntry("b", "PI", "two", "PI_X")]
    assert map_sycl_be_names(entries) == {"PI_X": "one"}


# Lines


def test_comments_blanks_crlf_and_byte_order_mark(tmp_path: Path) -> None:
    lines = (
        b"# a comment\r\n\r\n \tlibpi_x.so \t PI x PI_X  # another\r\n  # and one "
        b"more\r\nlibur_y.so.0 UR y -"
    )
    given = "libpi_x.so", "PI", "x", "PI_X"
    expected = [PluginEntry(*given), PluginEntry("libur_y.so.0", "UR", "y")]
    assert read(tmp_path, codecs.BOM_UTF8 + lines) == expected


@pytest.mark.slow
@given(entries=st.lists(ENTRIES, min_size=1))
def test_entries_round_trip_in_their_order(
    tmp_path_factory: pytest.TempPathFactory, entries: list[PluginEntry]
) -> None:
    lines = [
        f"{entry.library} {entry.interface} {entry.backend} {entry.sycl_be or '-'}\n"
        for entry in entries
    ]
    assert read(tmp_path_factory.mktemp("config"), "".join(lines)) == entries


@table(
    "library, interface, backend, sycl_be",
    [
        ("libpi_opencl.so", "PI", "opencl", "PI_OPENCL"),
        ("libpi_rocm.so", "PI", "hip", "PI_ROCM"),
        ("libpi_unified_runtime.so", "PI", "unknown", ""),
        ("libur_adapter_level_zero_v2.so.0", "UR", "level_zero", ""),
        ("libur_adapter_offload.so", "UR", "offload", ""),
        ("/opt/dpcpp/libur_adapter_cuda.so.0.12.0", "UR", "cuda", ""),
        ("libplugin_replay.so", "PI", "unknown", ""),
        ("xlibpi_opencl.so", "PI", "unknown", ""),
    ],
)
def test_a_name_alone_tells_the_rest(
    tmp_path: Path, library: str, interface: str, backend: str, sycl_be: str
) -> None:
    assert read(tmp_path, library) == [PluginEntry(library, interface, backend, sycl_be)]


def test_a_path_is_relative_to_the_file_and_not_to_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "current").mkdir()
    (tmp_path / "config").mkdir()
    monkeypatch.chdir(tmp_path / "current")
    (tmp_path / "config/my.conf").write_text(
        "./libpi_hip.so\nsub/x.so PI x -\nlibpi_cuda.so\n'/opt/my plugins/libpi_cuda.so'\n"
    )
    items = read_config("../config/my.conf", "a test")
    libraries = [item.library for item in items if isinstance(item, PluginEntry)]
    folder = tmp_path / "config"
    assert libraries == [
        f"{folder}/libpi_hip.so",
        f"{folder}/sub/x.so",
        "libpi_cuda.so",
        "/opt/my plugins/libpi_cuda.so",
    ]


def test_a_name_that_is_not_utf8_round_trips(tmp_path: Path) -> None:
    (entry,) = read(tmp_path, b"/opt/caf\xe9/libpi_hip.so\n")
    assert (
        isinstance(entry, PluginEntry)
        and os.fsencode(entry.library) == b"/opt/caf\xe9/libpi_hip.so"
    )


@table(
    "line, words",
    [
        ("libpi_x.so PI", "2 fields"),
        ("libpi_x.so PI x", "3 fields"),
        ("libpi_x.so PI x PI_X more", "5 fields"),
        ("/opt/my plugins/libpi_x.so", "2 fields"),
        ("libpi_x.so pi x PI_X", "'pi' is not an interface"),
        ("libpi_x.so PI OpenCL PI_X", "'OpenCL' is not a backend"),
        ("libpi_x.so PI x OPENCL", "'OPENCL' is not a SYCL_BE"),
        ("'libpi_x.so PI x PI_X", "has no end"),
        ("libpi_x.so\\", "has no end"),
        ("'' PI x PI_X", "fields"),
    ],
)
def test_a_malformed_line_is_refused_with_its_number_and_stops_no_other(
    tmp_path: Path, line: str, words: str
) -> None:
    refused, kept = read(tmp_path, f"# first\n\n{line}\nlibpi_y.so\n")
    refusal = only_refusal([refused])
    assert refusal.what == f"{tmp_path}/plugins.conf:3" and words in refusal.reason
    assert kept == deduce("libpi_y.so")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "is empty"), (b"# nothing\n", "is empty"), (b"\x7fELF\x02\x01", "not plain text")],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, content: bytes, words: str) -> None:
    assert words in only_refusal(read(tmp_path, content)).reason


def test_a_file_that_does_not_exist_and_a_directory(tmp_path: Path) -> None:
    assert only_refusal(read_config(str(tmp_path / "none"), "a test")).reason == "does not exist"
    assert "a directory" in only_refusal(read_config(str(tmp_path), "a test")).reason


@given(content=st.binary(max_size=200))
def test_any_content_gives_entries_or_reasons(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    items = read(tmp_path_factory.mktemp("config"), content)
    assert items
    assert all(
        item.library if isinstance(item, PluginEntry) else item.reason and item.remedy
        for item in items
    )
