"""Where OpenCL drivers are found: the order of the steps, every loader's variables, and loaders
posing as drivers."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.icd import discovery
from fairlead.icd.discovery import VARIABLES, explain_variables, find
from fairlead.loader.base import search
from fairlead.loader.base.search import Candidate, Place, SearchResult

SYSTEM = "/etc/OpenCL/vendors"


class Machine:
    """A machine in a directory: a manifest and a library for each searched place, named after
    it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.vendors, self.prefix = root / "vendors", root / "prefix"
        self.manifest(self.vendors, "system")
        self.manifest(self.prefix / "etc/OpenCL/vendors", "prefix")
        self.manifest(root / "site-packages/pyopencl/.libs", "wheel")
        self.manifest(root / "pyopencl-home/.libs", "home")
        self.manifest(root / "shipped", "shipped")
        self.manifest(root / "other", "other")
        self.manifest(root / "path", "path")

    def manifest(self, directory: Path, name: str) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        self.library(name)
        path = directory / f"{name}.icd"
        path.write_text(f"{self.root}/lib{name}.so\n")
        return path

    def library(self, name: str) -> str:
        (self.root / f"lib{name}.so").touch()
        return f"{self.root}/lib{name}.so"

    def find(self, **environ: str) -> SearchResult:
        return find(environ, vendors=str(self.vendors), prefix=str(self.prefix))

    def names(self, **environ: str) -> list[str]:
        """The drivers that are found, `system` for `<root>/libsystem.so`."""
        prefix = f"{self.root}/lib"
        return [
            candidate.library.removeprefix(prefix).removesuffix(".so")
            for candidate in self.find(**environ).candidates
        ]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    spec = importlib.machinery.ModuleSpec("pyopencl", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path / "site-packages/pyopencl")]
    monkeypatch.setattr(importlib.util, "find_spec", {"pyopencl": spec}.get)
    monkeypatch.setattr(discovery, "find_shipped_vendors", lambda: tmp_path / "shipped")
    return Machine(tmp_path)


EVERYWHERE = ["system", "prefix", "wheel", "shipped"]


# The order of the steps


def test_without_variables(machine: Machine) -> None:
    result = machine.find()
    assert machine.names() == EVERYWHERE
    assert [candidate.found_via for candidate in result.candidates] == [
        SYSTEM,
        "Python prefix",
        "PoCL wheel",
        "vendors.d",
    ]
    assert [place.found_via for place in result.places] == [
        SYSTEM,
        "Python prefix",
        "PoCL wheel",
        "vendors.d",
    ]
    assert {place.state for place in result.places} == {"1 manifest"} and result.refusals == ()


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ("OCL_ICD_FILENAMES={}/libpath.so OCL_ICD_VENDORS={}/other", "path other"),
        ("OCL_ICD_VENDORS={}/libpath.so", "path"),
        ("OCL_ICD_VENDORS={}/libnone.so", "none"),  # that it does not exist, the probe says
        ("OCL_ICD_VENDORS=libsystem.so", "libsystem"),  # left to the system
        ("OCL_ICD_VENDORS=./libsystem.so:other:path/path.icd", "system other path"),
        ("OCL_ICD_VENDORS={}/path:{}/other", "path other"),
        ("PYOPENCL_HOME={}/site-packages/pyopencl", "system prefix wheel shipped"),  # the installed
    ],
)
def test_variables_lead_to_drivers(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, variables: str, names: str
) -> None:
    """`{}` is the machine's directory, which is the current one, too."""
    monkeypatch.chdir(machine.root)
    words = variables.replace("{}", str(machine.root)).split()
    assert machine.names(**dict(word.split("=") for word in words)) == names.split()


def test_filenames_come_first_and_replace_nothing(machine: Machine) -> None:
    one, two = machine.library("one"), machine.library("two")
    assert machine.names(OCL_ICD_FILENAMES=f"{one}:{two}") == ["one", "two", *EVERYWHERE]
    assert machine.find(OCL_ICD_FILENAMES=one).candidates[0] == Candidate(one, "OCL_ICD_FILENAMES")


@pytest.mark.parametrize("value", [":{}", "{}:", "::{}::"])
def test_filenames_with_an_empty_element(machine: Machine, value: str) -> None:
    result = machine.find(
        OCL_ICD_FILENAMES=value.format(machine.library("one")),
        OCL_ICD_VENDORS=str(machine.root / "other"),
    )
    assert [Path(candidate.library).name for candidate in result.candidates] == [
        "libone.so",
        "libother.so",
    ]
    assert all(
        refusal.what == "OCL_ICD_FILENAMES" and "is empty" in refusal.reason
        for refusal in result.refusals
    )
    assert len(result.refusals) == value.count(":")


def test_filenames_does_not_take_manifests(machine: Machine) -> None:
    manifest = str(machine.root / "other/other.icd")
    result = machine.find(OCL_ICD_FILENAMES=manifest)
    assert machine.names(OCL_ICD_FILENAMES=manifest) == EVERYWHERE
    assert result.refusals[0].what == manifest and "OCL_ICD_VENDORS" in result.refusals[0].remedy


def test_vendors_directory_replaces_all_that_follows(machine: Machine) -> None:
    environ = {
        "OCL_ICD_VENDORS": str(machine.root / "other"),
        "OPENCL_VENDOR_PATH": str(machine.root / "path"),
    }
    result = machine.find(**environ, PYOPENCL_HOME=str(machine.root / "pyopencl-home"))
    assert [candidate.library for candidate in result.candidates] == [machine.library("other")]
    assert result.candidates[0].found_via == "OCL_ICD_VENDORS"
    skipped = [
        place.found_via
        for place in result.places
        if place.state.startswith("not searched: OCL_ICD_VENDORS is set")
    ]
    expected = [
        "OPENCL_VENDOR_PATH",
        SYSTEM,
        "Python prefix",
        "PoCL wheel",
        "PYOPENCL_HOME",
        "vendors.d",
    ]
    assert skipped == expected


def test_vendors_manifest(machine: Machine) -> None:
    manifest = machine.root / "other/other.icd"
    (candidate,) = machine.find(OCL_ICD_VENDORS=str(manifest)).candidates
    assert candidate == Candidate(machine.library("other"), "OCL_ICD_VENDORS", str(manifest))


def test_vendors_bare_manifest_is_first_looked_up_in_the_vendor_directory(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(machine.root / "other")
    (machine.root / "other/system.icd").write_text(machine.library("decoy"))
    assert machine.names(OCL_ICD_VENDORS="system.icd") == ["system"]
    assert machine.names(
        OCL_ICD_VENDORS="path.icd", OPENCL_VENDOR_PATH=str(machine.root / "path")
    ) == ["path"]
    assert machine.names(OCL_ICD_VENDORS="other.icd") == ["other"], "then in the current directory"
    (refusal,) = machine.find(OCL_ICD_VENDORS="none.icd").refusals
    assert refusal.what == str(machine.vendors / "none.icd") and refusal.reason == "does not exist"


def test_vendors_list_of_everything_with_empty_elements(machine: Machine) -> None:
    root = machine.root
    value = f":{root / 'other'}::{root / 'path/path.icd'}:{machine.library('one')}:libsoname.so.1:"
    result = machine.find(OCL_ICD_VENDORS=value)
    expected = [
        machine.library("other"),
        machine.library("path"),
        machine.library("one"),
        "libsoname.so.1",
    ]
    assert [candidate.library for candidate in result.candidates] == expected
    assert len(result.refusals) == 3


@pytest.mark.parametrize(
    "name", ["OCL_ICD_FILENAMES", "OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "PYOPENCL_HOME"]
)
def test_empty_variable_is_unset(machine: Machine, name: str) -> None:
    assert machine.find(**{name: ""}) == machine.find()


def test_vendors_that_does_not_exist(machine: Machine) -> None:
    result = machine.find(OCL_ICD_VENDORS=str(machine.root / "none"))
    (refusal,) = result.refusals
    assert (
        result.candidates == ()
        and refusal.reason == "does not exist"
        and "OCL_ICD_VENDORS" in refusal.remedy
    )


def test_named_pipe_as_a_library(machine: Machine) -> None:
    pipe = machine.root / "libpipe.so"
    os.mkfifo(pipe)
    result = machine.find(OCL_ICD_FILENAMES=str(pipe), OCL_ICD_VENDORS=str(pipe))
    assert result.candidates == () and all(
        "named pipe" in refusal.reason for refusal in result.refusals
    )


def test_vendor_path_replaces_the_system_directory_only(machine: Machine) -> None:
    environ = {"OPENCL_VENDOR_PATH": str(machine.root / "path")}
    assert machine.names(**environ) == ["path", "prefix", "wheel", "shipped"]
    result = machine.find(**environ)
    assert result.candidates[0].found_via == "OPENCL_VENDOR_PATH"
    given = SYSTEM, SYSTEM, "not searched: OPENCL_VENDOR_PATH is set and replaces it"
    assert Place(*given) in result.places


def test_vendor_path_that_does_not_exist_says_so(machine: Machine) -> None:
    result = machine.find(OPENCL_VENDOR_PATH=str(machine.root / "none"))
    (refusal,) = result.refusals
    assert refusal.what == str(machine.root / "none") and "OPENCL_VENDOR_PATH" in refusal.remedy
    assert result.places[0].state == "does not exist"


def test_pyopencl_home(machine: Machine) -> None:
    result = machine.find(PYOPENCL_HOME=str(machine.root / "pyopencl-home"))
    assert machine.names(PYOPENCL_HOME=str(machine.root / "pyopencl-home")) == [
        "system",
        "prefix",
        "wheel",
        "home",
        "shipped",
    ]
    assert result.candidates[3].found_via == "PYOPENCL_HOME"


def test_the_package_that_import_pyopencl_names_is_searched_once(machine: Machine) -> None:
    home = machine.root / "site-packages/pyopencl"
    assert machine.find(PYOPENCL_HOME=str(home)) == machine.find()
    (machine.root / "link").symlink_to(home)
    assert machine.find(PYOPENCL_HOME=str(machine.root / "link")) == machine.find()


def test_base_prefix_of_a_virtual_environment(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(machine.root / "venv"))
    monkeypatch.setattr(sys, "base_prefix", str(machine.prefix))
    result = find({}, vendors=str(machine.vendors))
    assert [place.state for place in result.places if place.found_via == "Python prefix"] == [
        "does not exist",
        "1 manifest",
    ]
    assert machine.library("prefix") in [candidate.library for candidate in result.candidates]


def test_the_active_environment_of_conda(machine: Machine, tmp_path: Path) -> None:
    """Its Python may be another one: PyOpenCL of a virtual environment, and conda's drivers."""
    vendors = tmp_path / "conda/etc/OpenCL/vendors"
    vendors.mkdir(parents=True)
    (tmp_path / "conda/libpocl.so").touch()
    (vendors / "pocl.icd").write_text(f"{tmp_path}/conda/libpocl.so\n", encoding="utf-8")
    for prefix in (str(tmp_path / "conda"), "conda", ""):
        result = find({"CONDA_PREFIX": prefix}, vendors=str(machine.vendors))
        is_found = any(place.path == str(vendors) for place in result.places)
        assert is_found == (prefix == str(tmp_path / "conda")), result.places


@pytest.mark.parametrize(
    "failure", [None, ImportError("a hook failed"), ValueError("pyopencl.__spec__ is not set")]
)
def test_no_pyopencl(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, failure: Exception | None
) -> None:
    def find_spec(name):
        if failure:
            raise failure

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    assert machine.names() == ["system", "prefix", "shipped"]
    (place,) = (place for place in machine.find().places if place.found_via == "PoCL wheel")
    assert place.state.startswith("does not exist")


@pytest.mark.parametrize("directory", ["shipped", "prefix/etc/OpenCL/vendors"])
def test_path_relative_to_site_packages(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    """Relative paths belong to vendors.d and the Python environment.

    The current directory is not searched, though Python's path has it.
    """
    site, current = machine.root / "site-packages", machine.root / "current"
    for folder in (site / "package", current / "package"):
        folder.mkdir(parents=True)
        (folder / "libdriver.so").touch()
    monkeypatch.setattr(sys, "path", ["", str(current), str(site)])
    monkeypatch.chdir(current)
    (machine.root / directory / "zzz.icd").write_text("package/libdriver.so")
    assert str(site / "package/libdriver.so") in [
        candidate.library for candidate in machine.find().candidates
    ]
    monkeypatch.setattr(sys, "path", ["", str(current)])
    (refusal,) = machine.find().refusals
    assert refusal.reason.startswith("names package/libdriver.so, and there is no such file")
    # nobody needs the packages of all manifests that come with fairlead
    assert bool(refusal.remedy) == (directory != "shipped")


def test_path_in_the_system_directory_is_not_relative_to_site_packages(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.root / "site-packages/libdriver.so").touch()
    monkeypatch.setattr(sys, "path", [str(machine.root / "site-packages")])
    (machine.vendors / "zzz.icd").write_text("./libdriver.so")
    assert machine.names() == EVERYWHERE


def test_same_library_in_two_places_is_found_once(machine: Machine) -> None:
    (machine.root / "shipped/again.icd").write_text(machine.library("system"))
    result = machine.find(OCL_ICD_FILENAMES=machine.library("wheel"))
    assert [Path(candidate.library).name for candidate in result.candidates] == [
        "libwheel.so",
        "libsystem.so",
        "libprefix.so",
        "libshipped.so",
    ]
    assert len(result.refusals) == 2 and all(
        r.reason.startswith("same file as") for r in result.refusals
    )


# Loaders in a driver's place


@pytest.mark.parametrize(
    "name", ["libOpenCL.so", "libOpenCL.so.1", "libOpenCL.so.1.0.0", "libOpenCL-5519dec5.so.1.0.0"]
)
def test_manifest_naming_libopencl_itself(machine: Machine, name: str) -> None:
    (machine.root / name).touch()
    for line in (name, f"{machine.root}/{name}", f"/nonexistent/{name}"):
        (machine.root / "other/other.icd").write_text(line)
        result = machine.find(OCL_ICD_VENDORS=str(machine.root / "other"))
        (refusal,) = result.refusals
        assert result.candidates == () and refusal.what == str(machine.root / "other/other.icd")
        assert "loader" in refusal.reason and refusal.remedy


def test_manifest_naming_libopencl_through_a_symlink(machine: Machine) -> None:
    (machine.root / "libOpenCL-5519dec5.so.1.0.0").touch()
    (machine.root / "libinnocent.so").symlink_to("libOpenCL-5519dec5.so.1.0.0")
    (machine.root / "other/other.icd").write_text(f"{machine.root}/libinnocent.so")
    result = machine.find(OCL_ICD_VENDORS=str(machine.root / "other"))
    assert result.candidates == () and "libOpenCL-5519dec5.so.1.0.0" in result.refusals[0].reason


@pytest.mark.parametrize("variable", ["OCL_ICD_FILENAMES", "OCL_ICD_VENDORS"])
def test_variable_naming_libopencl_itself(machine: Machine, variable: str) -> None:
    (refusal,) = machine.find(**{variable: "libOpenCL.so.1"}).refusals
    assert refusal.found_via == variable and "loader" in refusal.reason


def test_drivers_with_similar_names_are_no_loaders(machine: Machine) -> None:
    (machine.root / "libmali.so").touch()
    (machine.root / "libOpenCL.so").symlink_to("libmali.so")
    value = f"libOpenCL_adreno.so:libMaliOpenCL.so:{machine.root}/libOpenCL.so"
    assert len(machine.find(OCL_ICD_VENDORS=value).candidates) == 3


# Variables


@pytest.mark.slow
@given(
    values=st.fixed_dictionaries(
        {v.name: st.text(st.characters(codec="utf-8", exclude_characters="\0")) for v in VARIABLES}
    )
)
def test_set_uid_process_ignores_every_variable(values: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "is_secure_process", lambda: True)
        result = find(values)
        assert all("set-uid" in use.outcome for use in explain_variables(values))
    assert result == find({})


@given(
    values=st.fixed_dictionaries(
        {v.name: st.text(st.characters(codec="utf-8", exclude_characters="\0")) for v in VARIABLES}
    )
)
def test_no_value_of_a_variable_makes_the_search_fail(values: dict[str, str]) -> None:
    result = find(values)
    assert all(candidate.library for candidate in result.candidates)
    assert all(refusal.reason for refusal in result.refusals)


def test_every_variable_is_explained_once() -> None:
    names = [variable.name for variable in VARIABLES]
    assert len(names) == len(set(names)) == 13
    assert all(variable.loaders and variable.meaning and variable.here for variable in VARIABLES)
    assert {v.name for v in VARIABLES if v.name.startswith("OPENCL_LAYER") and v.honoured} == set()


def test_explain_variables_tells_which_took_effect() -> None:
    environ = {
        "OCL_ICD_VENDORS": "/a",
        "OPENCL_VENDOR_PATH": "/b",
        "PYOPENCL_HOME": "",
        "OPENCL_LAYERS": "/c",
        "HOME": "/d",
    }
    outcomes = {use.variable.name: use.outcome for use in explain_variables(environ)}
    assert outcomes.pop("OCL_ICD_VENDORS").startswith("honoured: ")
    assert outcomes.pop("OPENCL_LAYERS").startswith("not honoured: ")
    assert outcomes == {
        "OPENCL_VENDOR_PATH": "no effect: OCL_ICD_VENDORS is set and replaces it",
        "PYOPENCL_HOME": "empty, which counts as not set",
    }


def test_variables_that_the_search_honours_are_steps() -> None:
    steps = {step.name for step in discovery.STEPS}
    assert {v.name for v in VARIABLES} & steps == {
        "OCL_ICD_FILENAMES",
        "OCL_ICD_VENDORS",
        "OPENCL_VENDOR_PATH",
        "PYOPENCL_HOME",
    }
    assert {name for step in discovery.STEPS for name in step.replaced_by} <= steps


# This very environment


def test_finds_the_installed_wheels_without_any_variable(tmp_path: Path) -> None:
    result = find({}, vendors=str(tmp_path))
    pocl = [
        candidate
        for candidate in result.candidates
        if Path(candidate.library).name.startswith("libpocl-")
    ]
    assert [candidate.found_via for candidate in pocl] == ["PoCL wheel"] and Path(
        pocl[0].library
    ).is_file()
    intel = [
        candidate
        for candidate in result.candidates
        if Path(candidate.library).name == "libintelocl.so"
    ]
    assert [candidate.found_via for candidate in intel] == ["Python prefix"]
    assert intel[0].manifest == os.path.join(sys.prefix, "etc/OpenCL/vendors/intel-cpu.icd")


def test_vendors_d_alone_finds_the_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (candidate,) = find({}, vendors=str(tmp_path), prefix=str(tmp_path)).candidates
    assert candidate.found_via == "vendors.d" and Path(candidate.library).is_file()
    shipped = discovery.find_shipped_vendors()
    assert candidate.manifest == os.path.join(shipped, "pocl-binary-distribution.icd")


def test_search_does_not_import_pyopencl(tmp_path: Path) -> None:
    code = (
        "import sys; from fairlead.icd.discovery import find; find(); "
        "sys.exit('pyopencl' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_results_cannot_be_changed() -> None:
    result = find({})
    with pytest.raises(AttributeError):
        result.candidates = ()  # type: ignore[misc]
