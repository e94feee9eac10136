"""What a file shows before it is loaded: adapters, plugins, versions, and other kinds of files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from helpers.tables import table

from fairlead.loader.ur.preview import SINCE, examine_file

Build = Callable[..., Path]

#: What every plugin exports: enough that a function's absence means something.
OLDEST = tuple(f"piFunction{number}" for number in range(100))


@pytest.fixture
def build(compile_c: Callable[..., Path], tmp_path: Path) -> Build:
    """Builds a library that exports functions of these names: `build("piPluginInit",
    name="libpi_x.so")`."""

    def build(*functions: str, name: str = "libtest.so", flags: Iterable[str] = ()) -> Path:
        source = tmp_path / "source.c"
        bodies = (
            f'__attribute__((visibility("default"))) int {function}(void) {{ return 0; }}\n'
            for function in functions
        )
        source.write_text("int hidden_function(void) { return 0; }\n" + "".join(bodies))
        return compile_c(source, tmp_path / name, *flags)

    return build


def older_than(version: tuple[int, int]) -> list[str]:
    """The functions of a plugin of the version before."""
    return ["piPluginInit", *OLDEST, *(name for name, since in SINCE.items() if since < version)]


# Adapters


def test_an_adapter(build: Build) -> None:
    seen = examine_file(build("urGetAdapterProcAddrTable", "urAdapterGet"))
    assert (seen.interface, seen.reason, seen.remedy) == ("UR", "", "")
    assert {
        "urGetAdapterProcAddrTable",
        "urAdapterGet",
    } <= seen.exports and "hidden_function" not in seen.exports


def test_one_getter_makes_an_adapter(build: Build) -> None:
    assert examine_file(build("urGetCommandBufferExpProcAddrTable")).interface == "UR"


def test_what_a_library_needs_is_no_export(
    build: Build, tmp_path: Path, compile_c: Callable[..., Path]
) -> None:
    (tmp_path / "user.c").write_text(
        "extern int urGetAdapterProcAddrTable(void);\n"
        '__attribute__((visibility("default"))) int call(void) { return '
        "urGetAdapterProcAddrTable(); }\n"
    )
    seen = examine_file(compile_c(tmp_path / "user.c", tmp_path / "user.so"))
    assert (
        seen.interface == ""
        and "call" in seen.exports
        and "urGetAdapterProcAddrTable" not in seen.exports
    )


def test_version_by_the_name_of_the_real_file(build: Build, tmp_path: Path) -> None:
    path = build("urGetAdapterProcAddrTable", name="libur_adapter_x.so.0.12.0")
    link = tmp_path / "libur_adapter_x.so.0"
    link.symlink_to(path)
    assert examine_file(path).version == examine_file(link).version == "0.12"


def test_version_by_the_name_of_a_copy_beside_it(build: Build, tmp_path: Path) -> None:
    """Wheels cannot hold links: they hold copies."""
    path = build("urGetAdapterProcAddrTable", name="libur_adapter_x.so.0")
    shutil.copy(path, f"{path}.12.0")
    (tmp_path / "libur_adapter_x.so.0.11.0").write_bytes(b"another")
    (tmp_path / "libur_adapter_x.so.0.10.0").symlink_to("gone")
    assert examine_file(path).version == "0.12"


@pytest.mark.parametrize(
    ("symbol_version", "version"), [("LIBUR_ADAPTER_X_0.11", "0.11"), ("LIBUR_ADAPTER_X_0.0", "")]
)
def test_version_by_symbol_versions(
    build: Build, tmp_path: Path, symbol_version: str, version: str
) -> None:
    script = tmp_path / "x.map"
    script.write_text(f"{symbol_version} {{ global: urGet*; local: *; }};")
    path = build(
        "urGetAdapterProcAddrTable",
        name="libur_adapter_x.so.0",
        flags=[f"-Wl,--version-script={script}"],
    )
    seen = examine_file(path)
    assert (seen.interface, seen.version) == (
        "UR",
        version,
    ) and "urGetAdapterProcAddrTable" in seen.exports


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        (("urGetAdapterProcAddrTable", "urLoaderInit"), "the Unified Runtime loader itself"),
        (("urLoaderLayerGetInterface",), "a layer"),
        (("clGetExtensionFunctionAddress",), "neither"),
        ((), "neither"),
    ],
)
def test_what_is_neither_is_refused(build: Build, functions: tuple[str, ...], words: str) -> None:
    seen = examine_file(build(*functions))
    assert seen.interface == "" and words in seen.reason and seen.remedy


def test_an_opencl_loader_is_told_by_its_symbol_versions(build: Build, tmp_path: Path) -> None:
    (tmp_path / "cl.map").write_text(
        "OPENCL_1.0 { global: cl*; local: *; }; OPENCL_3.0 { } OPENCL_1.0;"
    )
    flag = f"-Wl,--version-script={tmp_path / 'cl.map'}"
    seen = examine_file(build("clGetPlatformIDs", flags=[flag]))
    assert (
        (seen.interface, seen.is_loader) == ("", True)
        and "it is an OpenCL loader" in seen.reason
        and seen.remedy
    )
    assert not examine_file(
        build("clGetPlatformIDs", "clIcdGetPlatformIDsKHR", name="driver.so", flags=[flag])
    ).is_loader
    assert not examine_file(build("clGetPlatformIDs", name="plain.so")).is_loader


# Plugins


@pytest.mark.slow
@table("function", SINCE)
def test_the_newest_function_tells_a_plugins_version(build: Build, function: str) -> None:
    version = SINCE[function]
    seen = examine_file(build(*older_than(version), function))
    assert (seen.interface, seen.version) == ("PI", f">={version[0]}.{version[1]}")


def test_versions_of_the_table_rise() -> None:
    assert list(SINCE.values()) == sorted(SINCE.values())


@pytest.mark.parametrize("version", [(6, 8), (12, 20), (14, 41), (14, 42)])
def test_a_plugin_before_15_is_refused(build: Build, version: tuple[int, int]) -> None:
    seen = examine_file(build(*older_than(version)))
    assert seen.interface == "PI" and "before 15" in seen.reason and seen.remedy


@pytest.mark.parametrize("version", [(15, 43), (15, 46), (16, 0)])
def test_a_plugin_that_may_be_15_is_not_refused(build: Build, version: tuple[int, int]) -> None:
    assert examine_file(build(*older_than(version))).reason == ""


def test_a_plugin_that_exports_nothing_else_is_left_to_its_own_word(build: Build) -> None:
    seen = examine_file(build("piPluginInit", "piextQueueCreate"))
    assert (seen.interface, seen.version, seen.reason) == ("PI", ">=12.20", "")
    assert examine_file(build("piPluginInit")).version == ""


# Files that are damaged


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"INPUT(libreal.so)\n", b"!<arch>\n"])
def test_no_elf_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.so").write_bytes(content)
    seen = examine_file(tmp_path / "x.so")
    assert seen.interface == "" and seen.reason and seen.remedy


def test_no_file(tmp_path: Path) -> None:
    assert examine_file(tmp_path / "none.so").reason == "the file does not exist"


@pytest.mark.slow
def test_no_damage_makes_it_raise(build: Build, tmp_path: Path) -> None:
    content = build("urGetAdapterProcAddrTable").read_bytes()
    path = tmp_path / "damaged.so"
    for byte in range(0, min(len(content), 0x1000), 7):
        path.write_bytes(content[:byte] + b"\xff\xff\xff\xff" + content[byte + 4 :])
        seen = examine_file(path)
        assert seen.interface or seen.reason
