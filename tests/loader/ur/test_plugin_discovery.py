"""Where adapters and plugins are found: order of the places, variables, backend filter, reasons."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.loader.base import search
from fairlead.loader.base.elf import check_file
from fairlead.loader.base.search import Refusal, SearchResult
from fairlead.loader.ur import plugin_places
from fairlead.loader.ur.discovery import PluginCandidate, find_adapters, find_plugins
from fairlead.loader.ur.plugin_config import find_shipped_config
from fairlead.loader.ur.plugin_variables import VARIABLES, explain_variables, split_quoted_list

ADAPTER, PLUGIN = "libur_adapter_opencl.so.0", "libpi_opencl.so"
PREFIX, SYSTEM = "Python prefix", "system"


def elf_header() -> bytes:
    """Return the smallest file that passes for a shared library of this architecture: a bare
    header."""
    header = bytearray(Path("/proc/self/exe").read_bytes()[:64])
    header[16] = 3  # e_type: ET_DYN
    for place, size in ((32, 8), (56, 2)):  # e_phoff, e_phnum: no program headers
        header[place : place + size] = bytes(size)
    return bytes(header)


class Machine:
    """A machine in a directory: `put` makes libraries in its places, `system` is what ld.so
    finds."""

    def __init__(self, root: Path) -> None:
        self.root, self.prefix = root, root / "prefix"
        self.system: dict[str, str] = {}

    def put(self, directory: str, *names: str, content: bytes | None = None) -> str:
        """Libraries in `<root>/directory`, which is answered."""
        folder = self.root / directory
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / name).write_bytes(elf_header() if content is None else content)
            if directory == "system":
                self.system[name] = str(folder / name)
        return str(folder)

    def adapters(self, *, accepts=None, **environ: str) -> SearchResult:
        return find_adapters(environ, prefix=str(self.prefix), accepts_backend=accepts)

    def plugins(self, *, accepts=None, **environ: str) -> SearchResult:
        return find_plugins(environ, prefix=str(self.prefix), accepts_backend=accepts)

    def paths(self, result: SearchResult) -> list[str]:
        return [candidate.library.removeprefix(f"{self.root}/") for candidate in result.candidates]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setattr(plugin_places, "find_library", machine.system.get)
    return machine


def only(result: SearchResult) -> PluginCandidate:
    (candidate,) = result.candidates
    assert isinstance(candidate, PluginCandidate)
    return candidate


def states(result: SearchResult) -> dict[str, str]:
    return {place.path: place.state for place in result.places}


def test_the_header_alone_passes_for_a_library(tmp_path: Path) -> None:
    (tmp_path / "x.so").write_bytes(elf_header())
    check_file(str(tmp_path / "x.so"))


# The order of the places


@pytest.mark.parametrize("first", range(5))
def test_first_place_that_has_an_adapter_wins(machine: Machine, first: int) -> None:
    places = ("search", "prefix/lib", "loader", "library path", "system")
    via = ("UR_ADAPTERS_SEARCH_PATH", PREFIX, "libur_loader.so", "LD_LIBRARY_PATH", SYSTEM)
    machine.put("loader", "libur_loader.so.0")
    machine.system["libur_loader.so.0"] = f"{machine.root}/loader/libur_loader.so.0"
    for place in places:
        machine.put(place)
    for place in places[first:]:
        machine.put(place, ADAPTER)
    environ = {
        "UR_ADAPTERS_SEARCH_PATH": f"{machine.root}/search",
        "LD_LIBRARY_PATH": f"{machine.root}/library path",
    }
    result = machine.adapters(**environ)
    expected = PluginCandidate(
        f"{machine.root}/{places[first]}/{ADAPTER}",
        via[first],
        find_shipped_config(),
        "UR",
        "opencl",
    )
    assert result.candidates == (expected,) and result.refusals == ()
    found = [place.state for place in result.places if place.found_via in via]
    assert found == ["no adapter"] * first + ["1 adapter"] * (5 - first)


@pytest.mark.parametrize("first", range(4))
def test_first_place_that_has_a_plugin_wins(machine: Machine, first: int) -> None:
    places = "prefix/lib", "runtime", "library path", "system"
    via = PREFIX, "libsycl.so", "LD_LIBRARY_PATH", SYSTEM
    machine.put("runtime", "libsycl.so.7")
    machine.system["libsycl.so.7"] = f"{machine.root}/runtime/libsycl.so.7"
    for place in places[first:]:
        machine.put(place, PLUGIN)
    candidate = only(machine.plugins(LD_LIBRARY_PATH=f"{machine.root}/library path"))
    assert candidate == PluginCandidate(
        f"{machine.root}/{places[first]}/{PLUGIN}",
        via[first],
        find_shipped_config(),
        "PI",
        "opencl",
    )


def test_adapters_come_in_the_order_of_their_names_and_plugins_in_that_of_the_file(
    machine: Machine,
) -> None:
    names = [
        "libur_adapter_opencl.so.0",
        "libur_adapter_level_zero_v2.so.0",
        "libur_adapter_level_zero.so.0",
    ]
    machine.put("prefix/lib", *names, "libpi_cuda.so", "libpi_level_zero.so", "libpi_opencl.so")
    assert machine.paths(machine.adapters()) == [f"prefix/lib/{name}" for name in sorted(names)]
    backends = [
        candidate.backend
        for candidate in machine.plugins().candidates
        if isinstance(candidate, PluginCandidate)
    ]
    assert backends == ["opencl", "level_zero", "cuda"]


def test_name_without_version_is_taken_when_there_is_no_other(machine: Machine) -> None:
    machine.put(
        "prefix/lib", "libur_adapter_cuda.so", "libur_adapter_hip.so", "libur_adapter_hip.so.0"
    )
    machine.put("system", "libur_adapter_opencl.so", "libur_adapter_cuda.so.0")
    names = [
        "prefix/lib/libur_adapter_cuda.so",
        "prefix/lib/libur_adapter_hip.so.0",
        "system/libur_adapter_opencl.so",
    ]
    assert machine.paths(machine.adapters()) == names


def test_unusable_file_is_refused_and_the_next_place_searched(machine: Machine) -> None:
    machine.put("prefix/lib", ADAPTER, content=b"INPUT(libother.so)")
    machine.put("system", ADAPTER)
    result = machine.adapters()
    assert machine.paths(result) == [f"system/{ADAPTER}"]
    (refusal,) = result.refusals
    assert (
        refusal.what == f"{machine.prefix}/lib/{ADAPTER}"
        and "text file" in refusal.reason
        and refusal.remedy
    )


def test_dangling_link_is_refused(machine: Machine) -> None:
    machine.put("prefix/lib")
    (machine.prefix / "lib" / PLUGIN).symlink_to("gone.so")
    (refusal,) = machine.plugins().refusals
    assert "gone.so" in refusal.reason


def test_two_names_of_one_file_are_one_adapter(machine: Machine) -> None:
    folder = machine.put("prefix/lib", "libur_adapter_cuda.so.0")
    os.symlink("libur_adapter_cuda.so.0", f"{folder}/libur_adapter_hip.so.0")
    result = machine.adapters()
    assert machine.paths(result) == ["prefix/lib/libur_adapter_cuda.so.0"]
    assert result.refusals[0].reason.startswith("same file as")


def test_nothing_anywhere_is_no_error_and_says_where_it_looked(machine: Machine) -> None:
    for result in (machine.adapters(), machine.plugins()):
        assert result.candidates == result.refusals == ()
        assert states(result)[f"{machine.prefix}/lib"] == "does not exist"
        missing = [place for place in result.places if place.found_via == "plugins.conf"]
        assert len(missing) == 7 and all(place.state.startswith("not found") for place in missing)


def test_running_python_and_its_base_are_searched(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_places.sys, "prefix", f"{machine.root}/venv")
    monkeypatch.setattr(plugin_places.sys, "base_prefix", f"{machine.root}/base")
    machine.put("venv/lib", "libpi_cuda.so")
    machine.put("base/lib", "libpi_cuda.so", "libpi_hip.so")
    assert machine.paths(find_plugins({})) == ["venv/lib/libpi_cuda.so", "base/lib/libpi_hip.so"]


def test_folder_of_the_systems_runtime_does_not_count_when_the_prefix_has_one(
    machine: Machine,
) -> None:
    machine.put("prefix/lib", "libsycl.so.7", "libur_loader.so.0")
    machine.put("other", "libsycl.so.7", "libur_loader.so.0", PLUGIN, ADAPTER)
    machine.system.update(
        {name: f"{machine.root}/other/{name}" for name in ("libsycl.so.7", "libur_loader.so.0")}
    )
    assert machine.plugins().candidates == machine.adapters().candidates == ()
    assert states(machine.plugins())["libsycl.so"] == f"it is in {machine.prefix}/lib"


def test_folder_of_the_runtime_is_its_real_one(machine: Machine) -> None:
    machine.put("real", "libsycl.so.7", PLUGIN)
    machine.put("links")
    os.symlink("../real/libsycl.so.7", machine.root / "links/libsycl.so.7")
    assert machine.paths(machine.plugins(LD_LIBRARY_PATH=f"{machine.root}/links")) == [
        f"real/{PLUGIN}"
    ]


def test_directory_that_was_searched_is_not_searched_again(machine: Machine) -> None:
    folder = machine.put("prefix/lib", ADAPTER, content=b"broken")
    result = machine.adapters(LD_LIBRARY_PATH=f"{folder}:{folder}")
    assert len(result.refusals) == 1
    assert [place.state for place in result.places if place.path == folder] == [
        "1 adapter",
        f"already searched via {PREFIX}",
    ]


def test_empty_element_of_the_library_path_is_the_current_directory(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(machine.put("current", ADAPTER))
    assert machine.paths(machine.adapters(LD_LIBRARY_PATH=f"{machine.root}/none:")) == [
        f"current/{ADAPTER}"
    ]


@given(
    seed=st.integers(),
    names=st.sets(
        st.sampled_from(["cuda", "hip", "level_zero", "level_zero_v2", "opencl", "offload"])
    ),
)
def test_order_does_not_depend_on_the_file_system(
    tmp_path_factory: pytest.TempPathFactory, seed: int, names: set[str]
) -> None:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    files = [f"libur_adapter_{name}.so.0" for name in names]
    random.Random(seed).shuffle(files)
    machine.put("prefix/lib", *files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugin_places, "find_library", machine.system.get)
        assert machine.paths(machine.adapters()) == [f"prefix/lib/{file}" for file in sorted(files)]


# UR_ADAPTERS_FORCE_LOAD and UR_ADAPTERS_SEARCH_PATH


def test_forced_adapters_are_the_only_ones_in_the_order_given(machine: Machine) -> None:
    machine.put("prefix/lib", ADAPTER)
    folder = machine.put("mine", "libur_adapter_hip.so.0", "my.so")
    result = machine.adapters(
        UR_ADAPTERS_FORCE_LOAD=f"{folder}/my.so,{folder}/libur_adapter_hip.so.0"
    )
    via = "UR_ADAPTERS_FORCE_LOAD"
    assert result.candidates == (
        PluginCandidate(f"{folder}/my.so", via, None, "UR", "unknown"),
        PluginCandidate(f"{folder}/libur_adapter_hip.so.0", via, None, "UR", "hip"),
    )
    assert result.refusals == () and all(f"{via} is set" in place.state for place in result.places)


def test_forced_path_may_hold_colons_in_quotes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = machine.put("a:b;c", "my.so")
    monkeypatch.chdir(machine.put("current", "my.so"))
    result = machine.adapters(UR_ADAPTERS_FORCE_LOAD=f"'{folder}/my.so',\"my.so\",")
    assert machine.paths(result) == ["a:b;c/my.so", "current/my.so"]


@pytest.mark.parametrize("value", ["{}:b.so", "{};b.so", "{},,b.so", ",{}", '"{}:b.so', "''"])
def test_malformed_force_load_is_ignored_with_the_reason(machine: Machine, value: str) -> None:
    machine.put("prefix/lib", ADAPTER)
    environ = {"UR_ADAPTERS_FORCE_LOAD": value.format(machine.put("mine", "my.so") + "/my.so")}
    result = machine.adapters(**environ)
    assert machine.paths(result) == [f"prefix/lib/{ADAPTER}"]
    (refusal,) = result.refusals
    assert (
        "ignored" in refusal.reason and refusal.remedy and refusal.what == "UR_ADAPTERS_FORCE_LOAD"
    )
    (used,) = explain_variables(environ)
    assert used.outcome.startswith("ignored: element")


def test_forced_files_that_are_not_there_leave_nothing(machine: Machine) -> None:
    machine.put("prefix/lib", ADAPTER)
    archive = machine.put("mine", "my.a") + "/my.a"
    result = machine.adapters(UR_ADAPTERS_FORCE_LOAD=f"{machine.root}/none/one.so,{archive}")
    assert result.candidates == ()
    assert [refusal.what for refusal in result.refusals] == [f"{machine.root}/none/one.so", archive]
    assert (
        "does not exist" in result.refusals[0].reason
        and "static library" in result.refusals[1].reason
    )
    assert all(refusal.remedy for refusal in result.refusals)


def test_forced_file_that_is_no_library_still_turns_the_search_off(machine: Machine) -> None:
    machine.put("prefix/lib", ADAPTER)
    text = machine.put("mine", "my.so", content=b"text") + "/my.so"
    result = machine.adapters(UR_ADAPTERS_FORCE_LOAD=text)
    assert result.candidates == () and "text file" in result.refusals[0].reason


def test_search_path_is_a_list_of_directories(machine: Machine) -> None:
    given = "two:", ADAPTER, "libur_adapter_hip.so.0"
    one, two = machine.put("one", "libur_adapter_hip.so.0"), machine.put(*given)
    result = machine.adapters(UR_ADAPTERS_SEARCH_PATH=f"{machine.root}/none,{one},'{two}'")
    assert machine.paths(result) == ["one/libur_adapter_hip.so.0", f"two:/{ADAPTER}"]
    assert (
        result.refusals[0].what == f"{machine.root}/none"
        and result.refusals[0].reason == "does not exist"
    )


def test_malformed_search_path_is_ignored_with_the_reason(machine: Machine) -> None:
    machine.put("prefix/lib", ADAPTER)
    result = machine.adapters(UR_ADAPTERS_SEARCH_PATH=f"{machine.put('one')}:/two")
    assert (
        machine.paths(result) == [f"prefix/lib/{ADAPTER}"]
        and "ignored" in result.refusals[0].reason
    )


@given(
    elements=st.lists(st.text(st.characters(blacklist_characters=",\"'"), min_size=1), min_size=1)
)
def test_quoted_lists_round_trip(elements: list[str]) -> None:
    assert split_quoted_list("LIST", ",".join(f'"{element}"' for element in elements)) == elements


@given(text=st.text(alphabet="a/.:;,'\" "))
def test_any_list_gives_elements_or_one_reason(text: str) -> None:
    elements = split_quoted_list("LIST", text)
    assert elements.reason and elements.remedy if isinstance(elements, Refusal) else all(elements)


@pytest.mark.parametrize(
    ("value", "deep"), [("1", True), ("YES", True), ("0", False), ("", False), ("2", False)]
)
def test_deep_bind_is_for_adapters(machine: Machine, value: str, deep: bool) -> None:
    machine.put("prefix/lib", ADAPTER, PLUGIN)
    assert only(machine.adapters(UR_ADAPTERS_DEEP_BIND=value)).deep_bind is deep
    assert only(machine.plugins(UR_ADAPTERS_DEEP_BIND=value)).deep_bind is False


# SYCL_PI_CONFIG and SYCL_OVERRIDE_PI_*


def test_own_file_replaces_the_plugins_that_ship(machine: Machine) -> None:
    folder = machine.put("prefix/lib", PLUGIN, "libpi_mine.so", "libodd.so")
    config = machine.root / "my.conf"
    config.write_text(
        "libodd.so\nlibpi_mine.so\nlibpi_none.so\nlibur_adapter_x.so.0\n./libpi_gone.so\n"
        "libpi_x.so PI\n"
    )
    result = machine.plugins(SYCL_PI_CONFIG=str(config))
    assert result.candidates == (
        PluginCandidate(f"{folder}/libodd.so", PREFIX, str(config), "PI", "unknown"),
        PluginCandidate(f"{folder}/libpi_mine.so", PREFIX, str(config), "PI", "mine"),
    )
    reasons = {refusal.what: refusal.reason for refusal in result.refusals}
    assert set(reasons) == {
        "libpi_none.so",
        "libur_adapter_x.so.0",
        f"{machine.root}/libpi_gone.so",
        f"{config}:6",
    }
    assert folder in reasons["libpi_none.so"] and "UR adapter" in reasons["libur_adapter_x.so.0"]
    assert all(refusal.remedy for refusal in result.refusals)


def test_own_file_that_does_not_exist_leaves_no_plugin(machine: Machine) -> None:
    machine.put("prefix/lib", PLUGIN, ADAPTER)
    result = machine.plugins(SYCL_PI_CONFIG=f"{machine.root}/none/my.conf")
    assert (
        result.candidates == ()
        and result.refusals[0].what == f"{machine.root}/none/my.conf"
        and result.refusals[0].remedy
    )
    assert only(machine.adapters(SYCL_PI_CONFIG=f"{machine.root}/none/my.conf"))


@pytest.mark.parametrize(
    ("variable", "backend"),
    [
        ("OPENCL", "opencl"),
        ("LEVEL_ZERO", "level_zero"),
        ("CUDA", "cuda"),
        ("HIP", "hip"),
        ("ROCM", "hip"),
    ],
)
def test_override_takes_the_place_of_a_backends_plugin(
    machine: Machine, variable: str, backend: str
) -> None:
    machine.put("prefix/lib", f"libpi_{backend}.so", "libpi_native_cpu.so")
    mine = machine.put("mine", "replay.so") + "/replay.so"
    name = f"SYCL_OVERRIDE_PI_{variable}"
    result = machine.plugins(**{name: mine})
    assert result.candidates[0] == PluginCandidate(mine, name, None, "PI", backend)
    assert machine.paths(result) == ["mine/replay.so", "prefix/lib/libpi_native_cpu.so"]


def test_override_by_name_is_found_where_plugins_are(machine: Machine) -> None:
    machine.put("system", "replay.so")
    found = only(machine.plugins(SYCL_OVERRIDE_PI_CUDA="replay.so")).found_via
    assert found == "SYCL_OVERRIDE_PI_CUDA"
    (refusal,) = machine.plugins(SYCL_OVERRIDE_PI_CUDA="gone.so").refusals
    assert refusal.what == "gone.so" and "SYCL_OVERRIDE_PI_CUDA" in refusal.remedy


def test_override_that_does_not_exist_is_refused_and_still_replaces(machine: Machine) -> None:
    machine.put("prefix/lib", PLUGIN)
    result = machine.plugins(SYCL_OVERRIDE_PI_OPENCL=f"{machine.root}/none/x.so")
    assert result.candidates == () and result.refusals[0].reason == "the file does not exist"


def test_hip_wins_over_its_older_name(machine: Machine) -> None:
    folder = machine.put("mine", "hip.so", "rocm.so")
    environ = {
        "SYCL_OVERRIDE_PI_ROCM": f"{folder}/rocm.so",
        "SYCL_OVERRIDE_PI_HIP": f"{folder}/hip.so",
    }
    assert machine.paths(machine.plugins(**environ)) == ["mine/hip.so"]
    assert [used.outcome.partition(":")[0] for used in explain_variables(environ)] == [
        "honoured",
        "no effect",
    ]


# The filter by backend


def only_cuda(backend: str) -> bool:
    return backend == "cuda"


@pytest.mark.parametrize("variable", ["ONEAPI_DEVICE_SELECTOR", "SYCL_DEVICE_FILTER"])
def test_selector_leaves_out_what_it_cannot_select(machine: Machine, variable: str) -> None:
    machine.put(
        "prefix/lib",
        ADAPTER,
        "libur_adapter_cuda.so.0",
        PLUGIN,
        "libpi_cuda.so",
        "libpi_unified_runtime.so",
    )
    machine.put("system", ADAPTER)
    for find, names in (
        (machine.adapters, ["libur_adapter_cuda.so.0"]),
        (machine.plugins, ["libpi_cuda.so"]),
    ):
        result = find(accepts=only_cuda, **{variable: "cuda:*"})
        assert [
            os.path.basename(path) for path in machine.paths(result) if "unified" not in path
        ] == names
        (refusal,) = result.refusals
        assert (
            f"left out by {variable}=cuda:*" in refusal.reason
            and "UR_LOADER_PRELOAD_FILTER=0" in refusal.remedy
        )


def test_unknown_backend_is_never_left_out(machine: Machine) -> None:
    machine.put("prefix/lib", "libpi_unified_runtime.so")
    assert only(machine.plugins(accepts=lambda _: False)).backend == "unknown"


def test_forced_adapter_is_never_left_out(machine: Machine) -> None:
    forced = machine.put("mine", ADAPTER) + f"/{ADAPTER}"
    found = only(machine.adapters(accepts=only_cuda, UR_ADAPTERS_FORCE_LOAD=forced)).backend
    assert found == "opencl"


@pytest.mark.parametrize(
    ("value", "found"), [("0", 1), ("false", 1), ("1", 0), ("True", 0), ("", 0)]
)
def test_filter_can_be_switched_off(machine: Machine, value: str, found: int) -> None:
    machine.put("prefix/lib", ADAPTER, PLUGIN)
    for find in (machine.adapters, machine.plugins):
        assert len(find(accepts=only_cuda, UR_LOADER_PRELOAD_FILTER=value).candidates) == found


# The variables


def test_every_variable_that_is_set_is_explained_in_the_order_of_the_table() -> None:
    used = explain_variables(
        {"HOME": "/", **{variable.name: "1" for variable in reversed(VARIABLES)}}
    )
    assert [one.variable for one in used] == list(VARIABLES)
    assert all(
        one.outcome.partition(":")[0] in ("honoured", "not honoured", "no effect") for one in used
    )
    assert explain_variables({}) == ()


def test_outcomes_of_variables() -> None:
    environ = {
        "UR_ADAPTERS_FORCE_LOAD": "/a.so",
        "UR_ADAPTERS_SEARCH_PATH": "/a",
        "UR_ENABLE_LOADER_INTERCEPT": "1",
        "LD_LIBRARY_PATH": "",
    }
    outcomes = {used.variable.name: used.outcome for used in explain_variables(environ)}
    assert outcomes["UR_ADAPTERS_FORCE_LOAD"].startswith("honoured: ")
    found = outcomes["UR_ADAPTERS_SEARCH_PATH"]
    assert found == "no effect: UR_ADAPTERS_FORCE_LOAD is set and replaces it"
    assert outcomes["UR_ENABLE_LOADER_INTERCEPT"].startswith("not honoured: ")
    assert outcomes["LD_LIBRARY_PATH"] == "empty, which counts as not set"


def test_malformed_variable_replaces_nothing() -> None:
    environ = {"UR_ADAPTERS_FORCE_LOAD": "/a:b", "UR_ADAPTERS_SEARCH_PATH": "/a"}
    assert [used.outcome.partition(":")[0] for used in explain_variables(environ)] == [
        "ignored",
        "honoured",
    ]


def test_secure_process_ignores_the_environment(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = machine.put("mine", ADAPTER, PLUGIN)
    environ = {
        "UR_ADAPTERS_FORCE_LOAD": f"{mine}/{ADAPTER}",
        "SYCL_OVERRIDE_PI_OPENCL": f"{mine}/{PLUGIN}",
        "LD_LIBRARY_PATH": mine,
    }
    assert machine.adapters(**environ).candidates and machine.plugins(**environ).candidates
    monkeypatch.setattr(search, "is_secure_process", lambda: True)
    assert machine.adapters(**environ).candidates == machine.plugins(**environ).candidates == ()
    assert {used.outcome for used in explain_variables(environ)} == {
        "ignored: this process is set-uid or set-gid"
    }


def test_every_variable_is_in_the_readme() -> None:
    readme = Path(find_shipped_config()).with_name("README.md").read_text()
    for variable in VARIABLES:
        if variable.honoured and variable.name != "ONEAPI_DEVICE_SELECTOR":
            assert (
                variable.name in readme or variable.name.removeprefix("SYCL_OVERRIDE_PI") in readme
            )
