"""Reading manifests and directories of them: one test for each fault of a manifest, named after
it."""

from __future__ import annotations

import codecs
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.loader.base import manifests, search
from fairlead.loader.base.search import Candidate, Place, Refusal, SearchResult


def search_one(directory: Path, content: bytes, name: str = "driver.icd") -> SearchResult:
    """What a manifest with this content comes to."""
    (directory / name).write_bytes(content)
    return search.collect(manifests.search_manifest(str(directory / name), "a test"))


def libraries(result: SearchResult) -> list[str]:
    return [candidate.library for candidate in result.candidates]


def search_all(directory: Path) -> SearchResult:
    return search.collect(manifests.search_directory(str(directory), "a test"))


def only_refusal(result: SearchResult) -> Refusal:
    """The one refusal of a search that found nothing; it must say what, why, and what to do."""
    assert result.candidates == ()
    (refusal,) = result.refusals
    assert refusal.what and refusal.reason and refusal.remedy and refusal.found_via == "a test"
    return refusal


# What a manifest holds


DRIVER = ["/opt/libdriver.so"]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"/opt/libdriver.so", DRIVER),
        (b"/opt/libdriver.so\n", DRIVER),
        (b"/opt/libdriver.so\n\n", DRIVER),
        (b"/opt/libdriver.so\r\n", DRIVER),
        (b" \t/opt/my driver/lib.so \t\n", ["/opt/my driver/lib.so"]),
        (codecs.BOM_UTF8 + b"/opt/libdriver.so\n", DRIVER),
        (b"# my driver\n  # and more\n/opt/libdriver.so\n", DRIVER),
        (b"\n/opt/libone.so\n\n/opt/libtwo.so\n", ["/opt/libone.so", "/opt/libtwo.so"]),
    ],
)
def test_each_line_names_a_library(tmp_path: Path, content: bytes, named: list[str]) -> None:
    result = search_one(tmp_path, content)
    manifest = str(tmp_path / "driver.icd")
    assert result.candidates == tuple(Candidate(one, "a test", manifest) for one in named)
    assert result.refusals == ()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        *(
            (empty, "names no library")
            for empty in (b"", b"\n", b" \r\n\t\n", codecs.BOM_UTF8, b"# nothing but this\n")
        ),
        (b"/opt/lib\0driver.so", "not plain text"),
        (b"\x7fELF\x02\x01\x01", "not plain text"),
        ("/opt/libdriver.so".encode("utf-16"), "not plain text"),
        (b"/opt/libdriver.so\n" * 10_000, "64 KiB"),
    ],
)
def test_what_is_no_manifest(tmp_path: Path, content: bytes, reason: str) -> None:
    assert reason in only_refusal(search_one(tmp_path, content)).reason


def test_bare_soname_is_left_to_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    current = tmp_path / "current"
    current.mkdir()
    (current / "librel.so").touch()
    monkeypatch.chdir(current)
    assert libraries(search_one(tmp_path, b"librel.so\n")) == ["librel.so"]


def test_bare_soname_beside_the_manifest_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "librel.so").touch()
    assert libraries(search_one(tmp_path, b"librel.so\n")) == [str(tmp_path / "librel.so")]


def test_bare_soname_beside_a_manifest_given_relatively_is_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("librel.so").touch()
    Path("driver.icd").write_text("librel.so")
    (candidate,) = manifests.search_manifest("driver.icd", "a test")
    assert candidate == Candidate(
        str(tmp_path / "librel.so"), "a test", str(tmp_path / "driver.icd")
    )


def test_relative_path_is_relative_to_the_manifest_then_to_the_bases(tmp_path: Path) -> None:
    for folder in ("manifests/lib", "base/lib"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "manifests/lib/libhere.so").touch()
    (tmp_path / "base/lib/libhere.so").touch()
    (tmp_path / "base/lib/libthere.so").touch()
    manifest = tmp_path / "manifests" / "driver.icd"
    manifest.write_text("lib/libhere.so\nlib/libthere.so\n")
    result = search.collect(
        manifests.search_manifest(str(manifest), "a test", bases=[str(tmp_path / "base")])
    )
    assert libraries(result) == [
        str(tmp_path / "manifests/lib/libhere.so"),
        str(tmp_path / "base/lib/libthere.so"),
    ]


def test_relative_path_is_never_relative_to_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current, manifests = tmp_path / "current", tmp_path / "manifests"
    current.mkdir()
    manifests.mkdir()
    (current / "librel.so").touch()
    monkeypatch.chdir(current)
    refusal = only_refusal(search_one(manifests, b"./librel.so\n"))
    assert (
        "./librel.so" in refusal.reason
        and str(manifests) in refusal.reason
        and "driver" in refusal.remedy
    )


def test_missing_library_stays_a_candidate(tmp_path: Path) -> None:
    missing = str(tmp_path / "build-prefix" / "libdriver.so")
    assert libraries(search_one(tmp_path, missing.encode())) == [missing]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_library_that_is_no_file(tmp_path: Path, make) -> None:
    make(tmp_path / "libdriver.so")
    refusal = only_refusal(search_one(tmp_path, bytes(tmp_path / "libdriver.so")))
    assert "not a library" in refusal.reason and str(tmp_path / "libdriver.so") in refusal.reason


def test_name_that_is_not_utf8_round_trips(tmp_path: Path) -> None:
    raw = bytes(tmp_path) + b"/libcaf\xe9.so"
    Path(os.fsdecode(raw)).touch()
    (library,) = libraries(search_one(tmp_path, raw + b"\n"))
    assert os.fsencode(library) == raw and os.path.exists(library)


@given(
    name=st.lists(st.sampled_from([*range(0x21, 0x7F), *range(0x80, 0x100)]), min_size=1).map(bytes)
)
def test_any_printable_name_round_trips(
    tmp_path_factory: pytest.TempPathFactory, name: bytes
) -> None:
    (library,) = libraries(
        search_one(tmp_path_factory.mktemp("manifests"), b"/nonexistent/lib" + name)
    )
    assert os.fsencode(library) == b"/nonexistent/lib" + name


@given(content=st.binary(max_size=200))
def test_any_content_gives_libraries_or_a_reason(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    result = search_one(tmp_path_factory.mktemp("manifests"), content)
    assert result.candidates or result.refusals
    assert all(libraries(result))


# What lies in the directory


@pytest.mark.parametrize("library", ["/opt/libdriver.so", "libdriver.so.1"])
def test_same_library_in_two_manifests_is_found_once(tmp_path: Path, library: str) -> None:
    for name in ("a.icd", "b.icd"):
        (tmp_path / name).write_text(library)
    result = search_all(tmp_path)
    assert result.candidates == (Candidate(library, "a test", str(tmp_path / "a.icd")),)
    assert result.refusals[0].what == str(tmp_path / "b.icd")
    assert result.refusals[0].reason.startswith(f"same file as {library}")


def test_symlink_to_the_same_file_is_found_once(tmp_path: Path) -> None:
    (tmp_path / "libdriver.so").touch()
    (tmp_path / "liblink.so").symlink_to("libdriver.so")
    (tmp_path / "a.icd").write_text("liblink.so")
    (tmp_path / "b.icd").write_text("libdriver.so")
    assert libraries(search_all(tmp_path)) == [str(tmp_path / "liblink.so")]


def test_copy_of_the_file_is_found_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"lib{name}.so").write_bytes(b"the same")
        (tmp_path / f"{name}.icd").write_text(f"lib{name}.so")
    assert libraries(search_all(tmp_path)) == [str(tmp_path / "liba.so"), str(tmp_path / "libb.so")]


def test_upper_case_suffix_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "A.ICD").write_text("/opt/libdriver.so")
    refusal = only_refusal(search_all(tmp_path))
    assert refusal.what == str(tmp_path / "A.ICD") and refusal.remedy == "rename it to end in .icd"


def test_file_named_exactly_icd_is_accepted(tmp_path: Path) -> None:
    (tmp_path / ".icd").write_text("/opt/libdriver.so")
    assert libraries(search_all(tmp_path)) == ["/opt/libdriver.so"]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Path.mkdir, "is a directory"),
        (os.mkfifo, "named pipe"),  # it does not wait for a writer
        (lambda path: path.symlink_to("x.icd"), "not readable"),
        (lambda path: (path.touch(), os.truncate(path, 1 << 40)), "64 KiB"),  # sparse, not read
    ],
)
def test_what_is_in_the_place_of_a_manifest(
    tmp_path: Path, make: Callable[[Path], object], reason: str
) -> None:
    make(tmp_path / "x.icd")
    assert reason in only_refusal(search_all(tmp_path)).reason


def test_dangling_symlink(tmp_path: Path) -> None:
    (tmp_path / "x.icd").symlink_to("gone.icd")
    refusal = only_refusal(search_all(tmp_path))
    assert refusal.reason == f"is a link to {tmp_path / 'gone.icd'}, which does not exist"


def test_named_pipe_put_there_after_the_check_does_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "x.icd")
    monkeypatch.setattr(manifests, "describe_kind", lambda path: "a file")
    assert only_refusal(search_all(tmp_path))


def test_unreadable_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.icd").write_text("/opt/libdriver.so")

    def refuse(path, *_, **__):  # instead of chmod, which does not stop root
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(manifests, "open", refuse, raising=False)
    refusal = only_refusal(search_all(tmp_path))
    assert refusal.reason == "not readable: Permission denied" and "chmod" in refusal.remedy


def test_one_bad_manifest_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.icd").touch()
    (tmp_path / "b.icd").write_text("/opt/libdriver.so")
    result = search_all(tmp_path)
    assert libraries(result) == ["/opt/libdriver.so"] and len(result.refusals) == 1


@pytest.mark.parametrize(
    ("names", "state"),
    [
        ([], "no manifest"),
        (["README.md"], "no manifest (other files: 1)"),
        (["a.icd", "README.md"], "1 manifest"),
        (["a.icd", "b.icd"], "2 manifests"),
    ],
)
def test_state_of_a_directory(tmp_path: Path, names: list[str], state: str) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert search_all(tmp_path).places == (Place(str(tmp_path), "a test", state),)


def test_directory_that_does_not_exist_is_a_place(tmp_path: Path) -> None:
    result = search_all(tmp_path / "none")
    assert result == SearchResult(
        (), (), (Place(str(tmp_path / "none"), "a test", "does not exist"),)
    )


def test_directory_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", refuse)
    result = search_all(tmp_path)
    assert result.places[0].state == "not readable: Permission denied"
    assert "chmod" in only_refusal(result).remedy


def test_file_in_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "vendors").touch()
    result = search_all(tmp_path / "vendors")
    assert result.places[0].state == "not readable: Not a directory" and only_refusal(result)


def test_other_suffix(tmp_path: Path) -> None:
    (tmp_path / "a.adapter").write_text("/opt/libadapter.so")
    (tmp_path / "b.icd").write_text("/opt/libdriver.so")
    result = search.collect(manifests.search_directory(str(tmp_path), "a test", suffix=".adapter"))
    assert libraries(result) == ["/opt/libadapter.so"]


@given(
    names=st.lists(
        st.from_regex(r"[A-Za-z0-9_é]{1,6}\.(icd|ICD|txt)", fullmatch=True), unique=True
    ),
    seed=st.integers(),
)
def test_order_is_that_of_the_names(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], seed: int
) -> None:
    """The result shows neither the order of creation nor the order in which the file system lists
    names."""
    directory = tmp_path_factory.mktemp("vendors")
    for name in names:
        (directory / name).write_text(f"/opt/{name}.so")
    list_names, shuffle = os.listdir, random.Random(seed).shuffle

    def listdir(path):
        listed = list_names(path)
        shuffle(listed)
        return listed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "listdir", listdir)
        result = search_all(directory)
    assert libraries(result) == [
        f"/opt/{name}.so" for name in sorted(names) if name.endswith(".icd")
    ]
    assert result == search_all(directory)


# Lists and the environment


def test_empty_elements_of_a_list_are_refused() -> None:
    elements = list(search.split_list("NAMES", ":a::b: "))
    assert [element for element in elements if isinstance(element, str)] == ["a", "b"]
    refusals = [element for element in elements if isinstance(element, Refusal)]
    assert [refusal.reason for refusal in refusals] == [
        f"element {number} of ':a::b: ' is empty" for number in (1, 3, 5)
    ]
    assert all(refusal.what == "NAMES" and refusal.remedy for refusal in refusals)


@given(st.dictionaries(st.text(), st.text()))
def test_secure_process_sees_no_environment(environ: dict[str, str]) -> None:
    assert search.filter_environ(environ, secure=True) == {}
    assert search.filter_environ(environ, secure=False) == environ


def test_this_process_is_not_secure() -> None:
    assert search.is_secure_process() is False
    assert search.filter_environ() is os.environ


def test_kernel_says_whether_the_process_is_secure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "is_secure_process", lambda: True)
    assert search.filter_environ() == {}
