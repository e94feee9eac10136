"""`import fairlead`: its names, its cost, and errors of `platforms()` and `devices()`.

`fairlead.adapters()` and `fairlead.pi_plugins()`: opened once, reopened after close, and nested.

They see fairlead's own drivers.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from helpers.support import FakeDriver, FakePlugin, RunPython, vendors

import fairlead
from fairlead.icd.discovery import find
from fairlead.loader.base.search import Candidate

CATCH = """
import fairlead
try:
    print(fairlead.{name}())
except fairlead.FairleadError as error:
    print(type(error).__name__, error.routine, error.code, error.remedy, sep="|")
    print(error)
"""


def test_the_public_names(run_python: RunPython) -> None:
    """Each one is there without an import of a submodule, and known to dir() and to `import *`."""
    code = """
import fairlead
for name in fairlead.__all__:
    assert getattr(fairlead, name) is not None and name in dir(fairlead), name
assert issubclass(fairlead.PlatformNotFoundError, fairlead.NotFoundError)
for error in ("LibraryError", "NotFoundError", "OpenCLError", "CaptureError", "ReplayError"):
    assert issubclass(getattr(fairlead, error), fairlead.FairleadError), error
from fairlead import *
assert isinstance(Platform, type) and isinstance(Device, type)
print(capture.__name__, platforms.__name__, sorted(fairlead.__all__)[:3])
"""
    found = run_python(code, fresh=True).out
    assert found == "capture platforms ['CaptureError', 'CaptureWarning', 'CapturedGraph']\n"


def test_a_name_that_is_not_there() -> None:
    import fairlead

    with pytest.raises(AttributeError, match="module 'fairlead' has no attribute 'plattforms'"):
        _ = fairlead.plattforms  # pyright: ignore[reportAttributeAccessIssue]


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    import fairlead

    assert fairlead.__version__ == version("fairlead")


def test_sources_that_are_not_installed_have_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    import fairlead

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.delitem(vars(fairlead), "__version__", raising=False)
    assert fairlead.__version__ == "unknown"
    monkeypatch.delitem(vars(fairlead), "__version__")


def test_the_import_loads_neither_the_native_module_nor_pyopencl(run_python: RunPython) -> None:
    code = """
import sys

before = set(sys.modules)
import fairlead

new = {
    name
    for name in set(sys.modules) - before
    if name.partition(".")[0] in ("fairlead", "pyopencl", "numpy", "click", "ctypes")
}
print(sorted(new))
fairlead.platforms, fairlead.FairleadError
print("pyopencl" in sys.modules, "numpy" in sys.modules, "click" in sys.modules)
"""
    found = run_python(code, fresh=True).out
    assert found == "['fairlead', 'fairlead.noted_programs']\nFalse False False\n"


@pytest.mark.parametrize(
    "imports",
    [
        "import fairlead.captured_graphs.context",
        "from fairlead.captured_graphs.context import CapturedGraph",
        "import fairlead; fairlead.capture",
    ],
)
def test_capture_is_the_function_also_when_its_module_was_imported(
    run_python: RunPython, imports: str
) -> None:
    code = (
        f"{imports}\nimport fairlead, types\nprint(callable(fairlead.capture), "
        "isinstance(fairlead.capture, types.ModuleType))"
    )
    assert run_python(code, fresh=True).out == "True False\n"


def test_platforms_and_their_devices_in_order(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    env = vendors(
        tmp_path,
        fake_driver(name='"A"'),
        fake_driver(name='"B"', icd=2, devices=2),
        fake_driver(name='"C"', devices=0),
    )
    code = """
import fairlead

print([platform.name for platform in fairlead.platforms()], isinstance(fairlead.platforms(), tuple))
print(
    [device.platform.name for device in fairlead.devices()], isinstance(fairlead.devices(), tuple)
)
"""
    found = run_python(code, env=env).out
    assert found == "['A 0', 'B 0', 'C 0'] True\n['A 0', 'B 0', 'B 0'] True\n"


@pytest.mark.parametrize("name", ["platforms", "devices"])
def test_no_driver_at_all_names_every_place_and_every_refusal(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path, name: str
) -> None:
    env = vendors(tmp_path, fake_driver(count=0))
    (tmp_path / "empty.icd").write_text("\n")
    out = run_python(CATCH.format(name=name), env=env).out
    head, text = out.split("\n", 1)
    assert (
        head
        == "PlatformNotFoundError|clGetPlatformIDs|CL_PLATFORM_NOT_FOUND_KHR|run `fairlead doctor`"
    )
    assert f"{fake_driver(count=0)}: clIcdGetPlatformIDsKHR: it has no platform" in text
    assert (
        f"{tmp_path}/empty.icd: names no library: it is empty (write the library's path into it, "
        "or delete it)" in text
    )
    assert f"{tmp_path}: 2 manifests" in text
    assert text.strip().endswith("remedy: run `fairlead doctor`")


def test_no_driver_and_no_place_of_the_catalogue_is_left_out(
    run_python: RunPython, tmp_path: Path
) -> None:
    """The reasons are the same that the search gives."""
    env = {"OCL_ICD_VENDORS": str(tmp_path)}
    text = run_python(CATCH.format(name="platforms"), env=env).out
    for place in find(env).places:
        assert f"{place.path}: {place.state}" in text


def test_a_notebook_shows_the_platforms_as_a_table(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    code = "import fairlead; print(fairlead.platforms()._repr_html_())"
    path = fake_driver(name='"One <1>"')
    page = run_python(code, env=vendors(tmp_path, path)).out
    assert "<td>One &lt;1&gt;" in page and f"<td>{path}</td>" in page and page.count("<tr>") == 2


def test_a_notebook_shows_the_devices_as_a_table(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    code = "import fairlead; print(fairlead.devices()._repr_html_())"
    env = vendors(tmp_path, fake_driver(name='"One <1>"', devices=2))
    page = run_python(code, env=env).out
    assert "<td>0:0</td>" in page and "<td>0:1</td>" in page
    assert "<td>One &lt;1&gt; 0</td>" in page and page.count("<tr>") == 3


def test_platforms_without_a_device(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    out = run_python(
        CATCH.format(name="devices"), env=vendors(tmp_path, fake_driver(devices=0))
    ).out
    assert out.startswith(
        "NotFoundError|clGetDeviceIDs|CL_DEVICE_NOT_FOUND|run `fairlead doctor`\n"
    )
    assert "the platform 'Fake 0' has no device" in out


def test_a_platform_that_fails_to_list_its_devices_does_not_hide_the_others(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    env = vendors(
        tmp_path,
        fake_driver(null_slot="SLOT_clGetDeviceIDs", name='"Bad"'),
        fake_driver(name='"Good"'),
    )
    done = run_python(
        "import fairlead\nprint([d.platform.name for d in fairlead.devices()])", env=env
    )
    assert done.out == "['Good 0']\n"
    assert (
        "RuntimeWarning: the platform 'Bad 0' failed to list its devices" in done.err
        and "clGetDeviceIDs" in done.err
    )


def test_the_pocl_wheel_and_intels_driver_with_no_variable_set(
    run_python: RunPython, pocl_wheel: Candidate, intel_cpu: Candidate
) -> None:
    code = "import fairlead\nprint([(d.platform.name, d.type) for d in fairlead.devices()])"
    out = run_python(code, env={"LD_LIBRARY_PATH": None}).out
    assert "('Portable Computing Language', 'CPU')" in out and "('Intel(R) OpenCL', 'CPU')" in out


def test_a_driver_is_the_same_in_every_process(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """The order does not depend on the order in which the file system lists the manifests."""
    names = [
        shutil.copy(fake_driver(name=f'"{letter}"'), tmp_path / f"{letter}.so") for letter in "CAB"
    ]
    for path in names:
        Path(path).with_suffix(".icd").write_text(f"{path}\n")
    code = "import fairlead\nprint([p.name for p in fairlead.platforms()])"
    assert run_python(code, env={"OCL_ICD_VENDORS": str(tmp_path)}).out == "['A 0', 'B 0', 'C 0']\n"


@pytest.mark.parametrize("name", ["capture", "Parameter", "graphed", "load"])
def test_a_bare_install_names_the_extra(run_python: RunPython, name: str) -> None:
    code = f"import sys; sys.modules['numpy'] = None; import fairlead; fairlead.{name}"
    done = run_python(code, fresh=True, check=False)
    assert (
        f"ModuleNotFoundError: fairlead.{name} needs numpy, which is not installed: pip install "
        "'fairlead[pyopencl]'" in done.err
    )


@pytest.mark.parametrize("module", [None, ModuleType("pyopencl")])
def test_a_device_without_pyopencl_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType | None
) -> None:
    """PoCL's wheel alone makes a folder `pyopencl`, which Python imports as a package."""
    device = fairlead.devices()[0]
    monkeypatch.setitem(sys.modules, "pyopencl", module)
    for one in (device, device.platform):
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'fairlead\[pyopencl\]'"):
            one.to_pyopencl()


OPEN = """
import sys, fairlead
listed = getattr(fairlead, sys.argv[1])
first = listed()
assert listed() is first and len(first) == 1
first.close()
second = listed()
assert second is not first and len(second) == 1
second.plugins[0].close()
print([device.name for device in listed().devices])
"""

NESTED = """
import os
from fairlead.api import make_nested_environment

variables = make_nested_environment()
folder = variables["OCL_ICD_VENDORS"]
print(
    folder,
    variables["OCL_ICD_FILENAMES"] == "",
    *(open(f"{folder}/{name}").read().strip() for name in sorted(os.listdir(folder))),
)
"""


@pytest.mark.parametrize("function", ["adapters", "pi_plugins"])
def test_opened_once_and_again_after_closing(
    run_python: RunPython, fake_plugin: FakePlugin, function: str
) -> None:
    env = {
        "UR_ADAPTERS_FORCE_LOAD": str(fake_plugin()),
        "SYCL_OVERRIDE_PI_HIP": str(fake_plugin(interface=2)),
    }
    assert run_python(OPEN, function, env=env).out == "['Fake device 0']\n"


def test_the_drivers_that_a_nested_loader_is_told_of(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    drivers = [fake_driver(name='"First"'), fake_driver(name='"Second"')]
    for number, driver in enumerate(drivers):
        (tmp_path / f"{number}.icd").write_text(f"{driver}\n")
    folder, empty, *told = run_python(NESTED, env={"OCL_ICD_VENDORS": str(tmp_path)}).out.split()
    assert (empty, told) == ("True", [str(driver) for driver in drivers])
    assert not os.path.exists(folder)  # removed when that process ended


def test_no_drivers_to_tell_of(run_python: RunPython, tmp_path: Path) -> None:
    code = "from fairlead.api import make_nested_environment; print(make_nested_environment())"
    assert run_python(code, env={"OCL_ICD_VENDORS": str(tmp_path)}).out == "{}\n"
