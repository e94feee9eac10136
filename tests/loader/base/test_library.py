"""Opening a library: every refusal says plainly what is wrong, and names every missing
dependency."""

from __future__ import annotations

import _ctypes
import os
import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from helpers.support import FakeDriver, RunPython

from fairlead.loader.base import linker
from fairlead.loader.base.elf import read_dynamic_section
from fairlead.loader.base.errors import LibraryError
from fairlead.loader.base.library import explain, find_remedy, open_library
from fairlead.loader.base.linker import (
    _find_python_paths,
    can_find_library,
    find_library,
    find_missing_dependencies,
)

CompileC = Callable[..., Path]
#: Libraries that other tools have linked.
LIBRARIES = tuple(
    filter(None, (_ctypes.__file__, *map(find_library, ("libc.so.6", "libstdc++.so.6"))))
)


def refusal(path: Path | str) -> LibraryError:
    with pytest.raises(LibraryError) as caught:
        open_library(str(path))
    assert str(path) in str(caught.value)
    return caught.value


def patched(library: Path, path: Path, offset: int, data: bytes) -> Path:
    """A copy of the library with some bytes of its ELF header changed."""
    content = bytearray(library.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(content)
    return path


@pytest.fixture
def library(fake_driver: FakeDriver) -> Path:
    return fake_driver()


def test_a_good_library_opens_and_tells_its_real_path_and_symbols(
    library: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link.so"
    link.symlink_to(library)
    opened = open_library(str(link))
    assert opened.path == str(library)
    assert opened.find_symbol("clGetExtensionFunctionAddress")
    assert opened.find_symbol("noSuchFunction") is None
    opened.close()


def test_a_bare_soname_is_left_to_the_linker() -> None:
    opened = open_library("libm.so.6")
    assert os.path.isabs(opened.path) and opened.find_symbol("cos")


def test_close_unmaps_the_library(library: Path, tmp_path: Path) -> None:
    copy = shutil.copy(library, tmp_path / "closed.so")
    opened = open_library(str(copy))
    assert "closed.so" in Path("/proc/self/maps").read_text()
    opened.close()
    assert "closed.so" not in Path("/proc/self/maps").read_text()


def test_a_file_that_does_not_exist() -> None:
    error = refusal("/nonexistent/libdriver.so")
    assert error.message == "the file does not exist"
    assert error.remedy


def test_a_dangling_symbolic_link_names_its_target(tmp_path: Path) -> None:
    (tmp_path / "driver.so").symlink_to(tmp_path / "gone.so")
    assert "gone.so, which does not exist" in refusal(tmp_path / "driver.so").message


def test_a_symbolic_link_to_itself(tmp_path: Path) -> None:
    (tmp_path / "driver.so").symlink_to(tmp_path / "driver.so")
    assert "cannot be read" in refusal(tmp_path / "driver.so").message


def test_a_directory(tmp_path: Path) -> None:
    assert refusal(tmp_path).message == "it is a directory, not a shared library"


def test_a_path_through_a_file(library: Path) -> None:
    assert "not a directory" in refusal(f"{library}/driver.so").message


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "driver.so")
    assert refusal(tmp_path / "driver.so").message == "it is not a regular file"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"INPUT(libreal.so)\n", "it is a text file"),
        (b"!<arch>\n", "it is a static archive"),
        (b"\x00\x01\x02\x03" * 100, "not an ELF file"),
        (b"\x7fELF", "truncated"),
    ],
)
def test_what_is_no_elf_file(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "driver.so"
    path.write_bytes(content)
    assert words in refusal(path).message


@pytest.mark.parametrize("part", [0.1, 0.5])
def test_a_truncated_library_is_refused_before_the_linker_can_be_killed_by_it(
    library: Path, tmp_path: Path, part: float
) -> None:
    content = library.read_bytes()
    path = tmp_path / "driver.so"
    path.write_bytes(content[: int(len(content) * part)])
    error = refusal(path)
    assert error.message == "the file is truncated"
    assert error.remedy == "install it again"


def test_a_header_whose_entries_have_no_size(library: Path, tmp_path: Path) -> None:
    """They would lie behind what was read of the file."""
    damaged, data = tmp_path / "libdamaged.so", bytearray(library.read_bytes())
    struct.pack_into("Q", data, 32, 4090)  # e_phoff
    struct.pack_into("HH", data, 54, 0, 0xFFFF)  # e_phentsize, e_phnum
    damaged.write_bytes(data)
    with pytest.raises(LibraryError):
        open_library(str(damaged))


def test_another_word_size(library: Path, tmp_path: Path) -> None:
    error = refusal(patched(library, tmp_path / "driver.so", 4, b"\x01"))
    assert "32-bit library" in error.message and "64-bit process" in error.message


def test_another_architecture(library: Path, tmp_path: Path) -> None:
    error = refusal(patched(library, tmp_path / "driver.so", 18, struct.pack("<H", 0xFFF0)))
    assert error.message == "it was built for another processor architecture, number 65520"
    foreign = {"x86-64": 183, "AArch64": 62}[error.remedy.rpartition(" ")[2]]
    error = refusal(patched(library, tmp_path / "other.so", 18, struct.pack("<H", foreign)))
    name = {183: "AArch64", 62: "x86-64"}[foreign]
    assert error.message == f"it was built for another processor architecture, {name}"


def test_an_object_file(library: Path, tmp_path: Path) -> None:
    error = refusal(patched(library, tmp_path / "driver.so", 16, struct.pack("<H", 1)))
    assert "not a shared library" in error.message


def test_no_permission(library: Path, tmp_path: Path, run_python: RunPython) -> None:
    path = Path(shutil.copy(library, tmp_path / "driver.so"))
    path.chmod(0)
    tmp_path.chmod(0o755)
    if os.access(path, os.R_OK) and os.geteuid():
        pytest.skip("the file system knows no permissions")
    code = """
import os, sys
from fairlead.loader.base.errors import LibraryError
from fairlead.loader.base.library import open_library
os.chdir(os.path.dirname(sys.argv[1]))
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    open_library("./driver.so")
except LibraryError as error:
    print(error.message, "|", error.remedy)
"""
    out = run_python(code, str(path)).out
    assert "this user may not read it" in out and "permission" in out


def test_an_undefined_symbol_is_told_in_the_linkers_words(
    compile_c: CompileC, tmp_path: Path
) -> None:
    source = tmp_path / "driver.c"
    source.write_text(
        'extern int no_such_function(void);\n__attribute__((visibility("default"))) '
        "int f(void) { return no_such_function(); }\n"
    )
    error = refusal(compile_c(source, tmp_path / "driver.so"))
    assert "no_such_function" in error.message
    assert "reinstall" in error.remedy


def test_a_bare_soname_that_is_nowhere() -> None:
    error = refusal("libfairlead-nowhere.so.1")
    assert "no library of this name" in error.message
    assert error.missing == ("libfairlead-nowhere.so.1",)


@pytest.fixture
def chain(compile_c: CompileC, tmp_path: Path) -> Callable[..., Path]:
    """Makes a library that needs others: `chain("libtop.so", bottom)`; the soname is the file's
    name."""

    def chain(name: str, *needs: Path, rpath: str = "", directory: Path = tmp_path) -> Path:
        source = tmp_path / "empty.c"
        source.write_text("")
        directory.mkdir(exist_ok=True)
        flags = [
            f"-Wl,-soname,{name}",
            "-Wl,--no-as-needed",
            "-Wl,--unresolved-symbols=ignore-all",
            *map(str, needs),
        ]
        return compile_c(
            source, directory / name, *flags, *([f"-Wl,-rpath,{rpath}"] if rpath else [])
        )

    return chain


def test_every_missing_dependency_is_named_also_the_indirect_ones(
    chain: Callable[..., Path], tmp_path: Path
) -> None:
    deep, gone = chain("libfl-deep.so.2"), chain("libfl-gone.so.1")
    middle = chain("libfl-middle.so", deep)
    top = chain("libfl-top.so", gone, middle, rpath="$ORIGIN")
    deep.unlink()
    gone.unlink()
    error = refusal(top)
    assert error.missing == ("libfl-gone.so.1", "libfl-deep.so.2")
    assert "it needs libfl-gone.so.1, libfl-deep.so.2, which are not found" in error.message
    assert "LD_LIBRARY_PATH" in error.remedy


def test_rpath_serves_what_a_library_with_runpath_needs_indirectly(
    chain: Callable[..., Path], tmp_path: Path
) -> None:
    far = chain("libfl-far.so", directory=tmp_path / "far")
    near = chain("libfl-near.so", far, directory=tmp_path / "near")
    middle = chain("libfl-runpath.so", near, rpath="$ORIGIN/near")
    old_style = "-Wl,--disable-new-dtags"
    top = chain("libfl-rpath.so", middle, old_style, rpath="$ORIGIN:$ORIGIN/far")
    assert find_missing_dependencies(str(top)) == ()
    open_library(str(top)).close()  # the linker agrees


@pytest.mark.parametrize("size", [0, 5, 50, 70])
def test_a_damaged_cache_of_the_linker_is_read_as_far_as_it_goes(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    magic = b"glibc-ld.so.cache1.1"
    header = magic + struct.pack("=I", 1000) + bytes(48 - len(magic) - 4)
    (tmp_path / "cache").write_bytes((header + bytes(100))[: len(magic) + size])
    monkeypatch.setattr(linker, "_CACHE", tmp_path / "cache")
    linker.read_linker_cache.cache_clear()
    linker._read_cache_file.cache_clear()
    try:
        assert len(linker.read_linker_cache()) <= 1
    finally:
        linker.read_linker_cache.cache_clear()
        linker._read_cache_file.cache_clear()


def test_runpath_serves_only_the_library_itself(chain: Callable[..., Path], tmp_path: Path) -> None:
    deep = chain("libfl-below.so", directory=tmp_path / "lib")
    middle = chain("libfl-between.so", deep, directory=tmp_path / "lib")
    top = chain("libfl-above.so", middle, rpath="$ORIGIN/lib")
    assert find_missing_dependencies(str(top)) == ("libfl-below.so",)
    chain("libfl-between.so", deep, directory=tmp_path / "lib", rpath="${ORIGIN}")
    assert find_missing_dependencies(str(top)) == ()


def test_ld_library_path_is_searched(
    chain: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = chain("libfl-needed.so", directory=tmp_path / "elsewhere")
    top = chain("libfl-needs.so", needed)
    assert find_missing_dependencies(str(top)) == ("libfl-needed.so",)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nonexistent:{needed.parent}")
    assert find_missing_dependencies(str(top)) == ()


def test_a_library_that_is_loaded_already_is_not_missing(
    chain: Callable[..., Path], tmp_path: Path
) -> None:
    needed = chain("libfl-loaded.so", directory=tmp_path / "elsewhere")
    top = chain("libfl-uses-loaded.so", needed)
    open_library(str(needed))
    assert find_missing_dependencies(str(top)) == ()
    open_library(str(top))


def test_the_linkers_cache_and_default_directories_are_read() -> None:
    found = find_library("libc.so.6")
    assert found and os.path.exists(found)
    assert find_library("libfairlead-nowhere.so") is None


def test_the_runpath_of_python_is_searched_for_what_python_opens(
    chain: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = chain("libfl-beside.so", directory=tmp_path / "lib")
    assert can_find_library("libc.so.6") and not can_find_library(library.name)
    monkeypatch.setattr(sys, "executable", str(chain("python", rpath="$ORIGIN/lib")))
    _find_python_paths.cache_clear()
    assert can_find_library(library.name) and not can_find_library("libfairlead-nowhere.so")
    _find_python_paths.cache_clear()


@pytest.mark.parametrize(
    ("soname", "words"),
    [
        ("libsvml.so", "pip install intel-cmplr-lib-rt"),
        ("libintlc.so.5", "pip install intel-cmplr-lib-rt"),
        ("libtbb.so.12", "pip install tbb"),
        ("libLLVM-14.so.1", "LLVM"),
        ("libtinfo.so.6", "libtinfo6"),
        ("libamd_comgr.so.2", "ROCm"),
        ("libnvidia-opencl.so.1", "NVIDIA container toolkit"),
        ("libsomething.so.1", "libsomething.so.1"),
    ],
)
def test_well_known_libraries_have_a_remedy(soname: str, words: str) -> None:
    assert words in find_remedy((soname,))


def test_a_remedy_is_given_once() -> None:
    found = find_remedy(("libimf.so", "libsvml.so", "libtbb.so.12"))
    assert found == "pip install intel-cmplr-lib-rt; pip install tbb"


def test_what_the_linker_says_is_kept_when_nothing_else_is_known(library: Path) -> None:
    assert "cannot do it today" in explain(str(library), "cannot do it today").message


def test_a_name_that_leads_to_a_file_that_is_no_library(
    tmp_path: Path, run_python: RunPython
) -> None:
    (tmp_path / "libbroken.so.1").write_text("no library" * 100, encoding="utf-8")
    code = """
from fairlead.loader.base.errors import LibraryError
from fairlead.loader.base.library import open_library
for name in ("libbroken.so.1", "libabsent.so.1"):
    try:
        open_library(name)
    except LibraryError as error:
        print(error.message)
"""
    done = run_python(code, env={"LD_LIBRARY_PATH": str(tmp_path)})
    broken, absent = done.out.splitlines()
    assert f"refused it: {tmp_path}/libbroken.so.1" in broken
    assert absent.startswith("no library of this name is in LD_LIBRARY_PATH")


def test_what_a_library_needs_is_what_another_parser_reads(chain: Callable[..., Path]) -> None:
    needed = chain("libfl-needed.so")
    library = chain("libfl-needing.so", needed, rpath="$ORIGIN:/a/$LIB")
    files = [library, Path(sys.executable).resolve(), *map(Path, LIBRARIES)]
    for file in files:
        with file.open("rb") as stream:
            tags = [
                (tag.entry.d_tag, getattr(tag, "needed", ""))
                for segment in ELFFile(stream).iter_segments()
                if isinstance(segment, DynamicSegment)
                for tag in segment.iter_tags()
            ]
        found, rpath, runpath = read_dynamic_section(str(file))
        assert found == [text for kind, text in tags if kind == "DT_NEEDED"]
        assert bool(rpath) == any(kind == "DT_RPATH" for kind, _ in tags)
        assert bool(runpath) == any(kind == "DT_RUNPATH" for kind, _ in tags)
    found, _, runpath = read_dynamic_section(str(library))
    assert needed.name in found and runpath[0] == str(library.parent)


def test_a_damaged_file_needs_what_can_be_read_of_it(library: Path, tmp_path: Path) -> None:
    content, copy, choose = library.read_bytes(), tmp_path / "damaged.so", Random(1)
    for number in range(300):
        damaged = bytearray(content[: choose.randrange(len(content))] if number % 2 else content)
        for _ in range(choose.randrange(1, 9)):  # the headers decide where everything is
            place = choose.randrange(min(1024, len(content)))
            damaged[place : place + 1] = choose.choice((b"\xff", b"\0", b"\x80", b""))
        copy.write_bytes(damaged)
        needed, rpath, runpath = read_dynamic_section(str(copy))
        assert all(isinstance(text, str) for text in (*needed, *rpath, *runpath))
