"""`fairlead doctor` on adapters and plugins: its findings, problems and remedies."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.doctor import COMMAND, Machine, judge, of
from helpers.support import FakeDriver, FakePlugin, RunPython, with_short_limit

from fairlead.cli.doctor import machine as nodes
from fairlead.cli.doctor.diagnosis import Diagnosis, DriverReport
from fairlead.cli.doctor.plugins import (
    PluginDeviceFacts,
    PluginPlatformFacts,
    PluginState,
    PluginSurvey,
    SelectorReport,
)
from fairlead.cli.doctor.report import render
from fairlead.loader.base.search import Candidate
from fairlead.loader.ur.abi import UR
from fairlead.plugins import reference_adapter

pytestmark = pytest.mark.slow

OURS = "fairlead brings an adapter for OpenCL,"
NONE = "no Unified Runtime adapter or PI plugin here; they come with DPC++"


class PluginMachine(Machine):
    """A machine with one good OpenCL driver. `load` makes it force-load adapters."""

    def __init__(self, run_python: RunPython, vendors: Path, driver: Path) -> None:
        super().__init__(run_python, vendors)
        self.driver = driver
        self.register("fake", driver)
        self.env["LD_LIBRARY_PATH"] = None

    def load(self, *adapters: Path | str) -> None:
        self.env["UR_ADAPTERS_FORCE_LOAD"] = ",".join(map(str, adapters))


@pytest.fixture
def machine(run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path) -> PluginMachine:
    (tmp_path / "vendors").mkdir()
    return PluginMachine(run_python, tmp_path / "vendors", fake_driver())


def states(facts: dict[str, Any]) -> dict[str, str]:
    return {
        os.path.basename(plugin["library"]): plugin["state"]
        for plugin in facts["plugins"]["plugins"]
    }


def outcomes(facts: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["outcome"] for variable in facts["variables"]}


# Good ones


def test_no_adapter_is_no_problem(machine: PluginMachine) -> None:
    facts = machine.examine()
    assert facts["ok"] and facts["problems"] == [] and facts["plugins"]["plugins"] == []
    assert facts["plugins"]["config"].endswith("plugins.conf")
    assert any(place["state"] == "no adapter" for place in facts["plugins"]["places"])
    text = machine.text
    assert NONE in text and "1 driver usable, 0 problems" in text
    assert (
        f"{OURS} {facts['plugins']['reference']}: UR_ADAPTERS_FORCE_LOAD=$(fairlead adapter) "
        "PROGRAM" in text
    )


def test_fairleads_own_adapter_is_proposed_until_there_is_one(machine: PluginMachine) -> None:
    ours = machine.examine()["plugins"]["reference"]
    assert ours == reference_adapter()
    machine.load(ours)
    assert (
        states(machine.examine()) == {os.path.basename(ours): "usable"} and OURS not in machine.text
    )
    machine.load("/nowhere/libur_adapter_x.so.0")
    machine.examine()
    assert OURS in machine.text


def test_an_adapter_and_a_plugin_that_are_well(
    machine: PluginMachine, fake_plugin: FakePlugin
) -> None:
    adapter, plugin = fake_plugin(devices=2), fake_plugin(interface=2)
    machine.load(adapter)
    machine.env["SYCL_OVERRIDE_PI_LEVEL_ZERO"] = str(plugin)
    facts = machine.examine()
    assert facts["ok"] and facts["problems"] == []
    ur, pi = facts["plugins"]["plugins"]
    assert (ur["interface"], ur["state"], ur["real_path"], ur["version"]) == (
        "UR",
        "usable",
        str(adapter),
        "0.12",
    )
    assert ur["layout"] == next(iter(UR.layouts)) and ur["found_via"] == "UR_ADAPTERS_FORCE_LOAD"
    assert [device["selector"] for device in ur["platforms"][0]["devices"]] == [
        "level_zero:0",
        "level_zero:1",
    ]
    assert (pi["interface"], pi["version"], pi["found_via"]) == (
        "PI",
        "15.47.1",
        "SYCL_OVERRIDE_PI_LEVEL_ZERO",
    )
    assert pi["platforms"][0]["devices"][0]["selector"] == "level_zero:0"
    text = machine.text
    assert (
        f"usable: UR adapter {adapter} (UR 0.12, probed in " in text
        and f"usable: PI plugin {plugin} (PI 15.47.1" in text
    )
    assert "[level_zero:1] gpu: Fake device 1, driver 1.2.3" in text and NONE not in text
    assert "1 driver, 1 UR adapter, 1 PI plugin usable, 0 problems" in text


def test_remarks_are_no_problems(machine: PluginMachine, fake_plugin: FakePlugin) -> None:
    machine.load(fake_plugin(layout=2))
    facts = machine.examine()
    assert facts["problems"] == []
    (note,) = facts["plugins"]["plugins"][0]["notes"]
    assert tuple(UR.layouts)[1] in note and f"note: {note}" in machine.text


def test_a_machine_with_an_adapter_and_no_driver(
    machine: PluginMachine, fake_plugin: FakePlugin, tmp_path: Path
) -> None:
    """What can be used is there: the rest is a warning."""
    machine.env["OCL_ICD_VENDORS"] = str(tmp_path)
    assert not machine.examine()["ok"]
    machine.load(fake_plugin())
    facts = machine.examine()
    assert facts["ok"] and of(facts, "warning")["OpenCL"][0] == "no driver with a device is usable"


def test_real_ones_and_the_drivers_they_are_told_of(
    run_python: RunPython,
    real_plugins: Path,
    pocl_wheel: Candidate,
    intel_cpu: Candidate,
    tmp_path: Path,
) -> None:
    for library in (
        "ur-then/libur_adapter_opencl.so.0",
        "ur-now/libur_adapter_level_zero.so.0",
        "umf/libumf.so.1",
    ):
        shutil.copy(real_plugins / library, tmp_path)
    adapters = [str(tmp_path / f"libur_adapter_{name}.so.0") for name in ("opencl", "level_zero")]
    env = {
        "UR_ADAPTERS_FORCE_LOAD": ",".join(adapters),
        "SYCL_OVERRIDE_PI_OPENCL": str(real_plugins / "pi/libpi_opencl.so"),
        "LD_LIBRARY_PATH": None,
    }
    facts = json.loads(run_python(COMMAND, "doctor", "--json", env=env, check=False).out)
    opencl, level_zero, pi = facts["plugins"]["plugins"]
    told = facts["plugins"]["drivers"]
    usable = [driver["real_path"] for driver in facts["drivers"] if driver["state"] == "usable"]
    assert told == usable and len(told) >= 2
    for plugin in (opencl, pi):
        assert plugin["state"] == "usable" and os.path.basename(plugin["opened"]).startswith(
            "libOpenCL.so"
        )
        assert {"Intel(R) OpenCL", "Portable Computing Language"} <= {
            platform["name"] for platform in plugin["platforms"]
        }
    assert (opencl["layout"], level_zero["layout"]) == ("2025.3", "2026.2")
    assert level_zero["state"] in ("idle", "usable")  # "usable" where there is such a GPU
    if level_zero["state"] == "idle":
        warned = "libur_adapter_level_zero.so.0" in of(facts, "warning")
        lacks_loader = "libze_loader.so.1 is not found" in level_zero["reason"]
        assert warned == (not lacks_loader or bool(facts["nodes"]))  # it matters where a GPU is


# Broken ones


#: Knobs of adapters, and why they are refused.
REFUSED: list[tuple[dict[str, object], str]] = [
    ({"at_load": "abort()"}, "it crashed with SIGABRT while opening the library"),
    ({"at_list": "crash()"}, "it crashed with SIGSEGV while listing its platforms"),
    (
        {"at_devices": "crash()"},
        "it crashed with SIGSEGV while asking its platforms for their devices",
    ),
    ({"at_teardown": "crash()"}, "it crashed with SIGSEGV while closing it"),
    ({"at_exit": "abort()"}, "it crashed with SIGABRT while closing it"),
    ({"at_load": "_exit(3)"}, "it ended the process with exit code 3 while opening the library"),
    ({"getter_error": "UR_RESULT_ERROR_UNSUPPORTED_VERSION"}, "it refuses to fill its table"),
    ({"exports": -1}, "so it is neither a Unified Runtime adapter"),
    ({"count": 1 << 20}, "it reports 1048576 handles"),
]
HANGING: list[tuple[dict[str, object], str]] = [
    ({"at_list": "hang()"}, "it did not answer within {limit} s while listing its platforms")
]


@pytest.mark.parametrize("refused", [REFUSED, HANGING], ids=["at once", "after its time"])
def test_adapters_that_are_refused_are_errors_and_the_others_are_listed(
    machine: PluginMachine, fake_plugin: FakePlugin, refused: list[tuple[dict[str, object], str]]
) -> None:
    bad, good = [fake_plugin(**knobs) for knobs, _ in refused], fake_plugin()
    machine.load(*bad, good)

    def check(limit: int) -> None:
        facts = machine.examine("--timeout", str(limit))
        expected = dict.fromkeys((library.name for library in bad), "refused")
        assert states(facts) == expected | {good.name: "usable"}
        errors = of(facts, "error")
        assert errors.keys() == expected.keys()
        for library, (knobs, why) in zip(bad, refused, strict=True):
            reason, remedy = errors[library.name]
            assert why.format(limit=limit) in reason, knobs
            assert f"export FAIRLEAD_EXCLUDE={library.name}" in remedy, knobs

    if refused is HANGING:
        with_short_limit(check)
    else:
        check(200)


def test_following_the_advice_to_exclude_leaves_no_problem(
    machine: PluginMachine, fake_plugin: FakePlugin
) -> None:
    bad = fake_plugin(interface=2, at_init="abort()")
    machine.env |= {"SYCL_OVERRIDE_PI_CUDA": str(bad), "FAIRLEAD_EXCLUDE": bad.name}
    facts = machine.examine()
    assert facts["ok"] and states(facts) == {bad.name: "excluded"}
    found = facts["plugins"]["plugins"][0]["reason"]
    assert found == f"FAIRLEAD_EXCLUDE leaves it out ({bad.name})"


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"platforms": 0}, "it has no platform: urPlatformGet gives none"),
        ({"adapters": 0}, "it has no platform: urPlatformGet gives none"),
        (
            {"adapter_error": "UR_RESULT_ERROR_DEVICE_LOST"},
            "it has no platform: urAdapterGet [UR_RESULT_ERROR_DEVICE_LOST]",
        ),
        ({"devices": 0}, "it has no device"),
    ],
)
def test_an_adapter_without_its_device_is_a_warning(
    machine: PluginMachine, fake_plugin: FakePlugin, knobs: dict[str, object], reason: str
) -> None:
    idle = fake_plugin(**knobs)
    machine.load(idle)
    facts = machine.examine()
    assert facts["ok"] and states(facts) == {idle.name: "idle"}
    assert reason in of(facts, "warning")[idle.name][0] and of(facts, "warning")[idle.name][1]


def test_an_odd_adapter_is_a_warning(machine: PluginMachine, fake_plugin: FakePlugin) -> None:
    odd = fake_plugin(release_error="UR_RESULT_ERROR_DEVICE_LOST")
    machine.load(odd)
    facts = machine.examine()
    assert facts["ok"] and states(facts) == {odd.name: "usable"}
    reason, remedy = of(facts, "warning")[odd.name]
    assert (
        reason.startswith("urAdapterRelease [UR_RESULT_ERROR_DEVICE_LOST]")
        and "leave it out" in remedy
    )


def test_two_names_of_one_file(
    machine: PluginMachine, fake_plugin: FakePlugin, tmp_path: Path
) -> None:
    adapter = fake_plugin()
    (tmp_path / "libother.so").symlink_to(adapter)
    machine.load(adapter, tmp_path / "libother.so")
    facts = machine.examine()
    assert facts["problems"] == [] and [
        r["reason"].startswith("same file as") for r in facts["plugins"]["refusals"]
    ] == [True]


def test_what_is_remembered_of_a_plugin_is_not_used(
    machine: PluginMachine, fake_plugin: FakePlugin, tmp_path: Path
) -> None:
    path = tmp_path / "libadapter.so"
    shutil.copy(fake_plugin(at_load="abort()"), path)
    machine.load(path)
    machine.run_python("import fairlead\nassert not len(fairlead.adapters())", env=machine.env)
    assert not machine.examine()["ok"]
    shutil.copy(fake_plugin(), path)
    assert machine.examine()["ok"]


# Variables


def test_variables_that_lead_nowhere_are_errors(machine: PluginMachine, tmp_path: Path) -> None:
    (tmp_path / "notes.so").write_text("I am no library.\n")
    machine.load("/nowhere/libgone.so", tmp_path / "notes.so")
    machine.env["SYCL_OVERRIDE_PI_HIP"] = "/nowhere/libpi.so"
    errors = of(machine.examine(), "error")
    assert (
        errors["libgone.so"][0] == "does not exist"
        and "UR_ADAPTERS_FORCE_LOAD" in errors["libgone.so"][1]
    )
    assert errors["notes.so"][0] == "it is a text file, not a shared library"
    assert errors["libpi.so"][0] == "the file does not exist"
    assert len(errors) == 3


def test_a_search_path_and_a_configuration_that_are_not_there(
    machine: PluginMachine, tmp_path: Path
) -> None:
    machine.env |= {
        "UR_ADAPTERS_SEARCH_PATH": str(tmp_path / "gone"),
        "SYCL_PI_CONFIG": str(tmp_path / "gone.conf"),
    }
    facts = machine.examine()
    assert set(of(facts, "error")) == {"gone", "gone.conf"}
    assert facts["plugins"]["config"] == str(tmp_path / "gone.conf")


def test_a_selector_that_cannot_be_understood_is_an_error(
    machine: PluginMachine, fake_plugin: FakePlugin
) -> None:
    machine.load(fake_plugin())
    machine.env["ONEAPI_DEVICE_SELECTOR"] = "level_zro:gpu"
    facts = machine.examine()
    reason, remedy = of(facts, "error")["ONEAPI_DEVICE_SELECTOR"]
    assert (
        "'level_zro' is not a backend, at character 1" in reason
        and "selector = term" in reason
        and "level_zero" in remedy
    )
    assert states(facts) and "illegal" in outcomes(facts)["ONEAPI_DEVICE_SELECTOR"]
    assert "selector = term" in machine.text


def test_a_selector_that_leaves_no_device_is_an_error(
    machine: PluginMachine, fake_plugin: FakePlugin
) -> None:
    machine.load(fake_plugin())
    machine.env["ONEAPI_DEVICE_SELECTOR"] = "cuda:*"
    reason, remedy = of(machine.examine(), "error")["ONEAPI_DEVICE_SELECTOR"]
    assert (
        reason.startswith("it selects none of the devices that are there: level_zero:0")
        and "ONEAPI_DEVICE_SELECTOR" in remedy
    )


def test_a_selector_that_leaves_some_devices_marks_the_others(
    machine: PluginMachine, fake_plugin: FakePlugin
) -> None:
    machine.load(fake_plugin(devices=3))
    machine.env |= {"ONEAPI_DEVICE_SELECTOR": "level_zero:1,2.1", "SYCL_BE": "PI_CUDA"}
    facts = machine.examine()
    devices = facts["plugins"]["plugins"][0]["platforms"][0]["devices"]
    assert facts["ok"] and [device["selected"] for device in devices] == [False, True, True]
    found = outcomes(facts)["SYCL_BE"]
    assert found == "no effect: ONEAPI_DEVICE_SELECTOR is set, and wins over it"
    assert "selects level_zero:1,2.1" in outcomes(facts)["ONEAPI_DEVICE_SELECTOR"]
    text = machine.text
    assert (
        "Fake device 0, driver 1.2.3, not selected\n" in text
        and "Fake device 1, driver 1.2.3\n" in text
    )


#: Variables that a machine has at once, their values, and what the doctor says of each.
VARIABLES = [
    {
        "SYCL_DEVICE_FILTER": (
            "gpu",
            "SYCL_DEVICE_FILTER is deprecated: use ONEAPI_DEVICE_SELECTOR",
        ),
        "SYCL_PI_TRACE": ("1", "prints the plugins that are found"),
        "SYCL_UR_TRACE": ("0x2", "prints the calls of Unified Runtime"),
        "UR_ENABLE_LAYERS": ("UR_LAYER_TRACING", "prints them where UR_LOG_TRACING says"),
        "UR_LOG_LOADER": ("level:info;output:file,/tmp/x.log", "from level info, go to /tmp/x.log"),
        "UR_LOG_CUDA": ("level:info", "no effect on fairlead"),
        "FAIRLEAD_TRACE": ("ur,cl,times", "traces the calls of ur, cl; prints them to stderr"),
    },
    {
        "SYCL_DEVICE_FILTER": ("", "empty, which counts as not set"),
        "SYCL_PI_TRACE": ("-1", "prints the calls of PI and Unified Runtime"),
        "SYCL_UR_TRACE": ("yes", "no effect: 1 prints what is found, 2 prints calls"),
        "UR_ENABLE_LAYERS": (
            "UR_LAYER_LEAK_CHECKING",
            "checks the calls through adapters: UR_LAYER_LEAK_CHECKING",
        ),
        "FAIRLEAD_TRACE": ("nothing", "no effect: it is a comma list of ur, pi, cl"),
        "UR_ADAPTERS_FORCE_LOAD": (
            "/a:b.so",
            "ignored: element 1 of '/a:b.so' contains ':' or ';'",
        ),
    },
    {
        "UR_ENABLE_LAYERS": ("UR_LAYER_NO", "there is no layer UR_LAYER_NO"),
        "FAIRLEAD_TRACE_FILE": ("x.json", "no effect: FAIRLEAD_TRACE is not set"),
    },
]


@pytest.mark.parametrize("variables", VARIABLES, ids=["good", "odd", "without effect"])
def test_what_variables_do(machine: PluginMachine, variables: dict[str, tuple[str, str]]) -> None:
    machine.env |= {name: value for name, (value, _) in variables.items()}
    said = outcomes(machine.examine())
    wrong = {name: said.get(name) for name in variables if variables[name][1] not in said[name]}
    assert not wrong, f"expected {variables}"


# The verdict, on facts that this machine may not have

GPU = PluginDeviceFacts("level_zero:0", True, "gpu", "GPU", "1")
USABLE = PluginState(
    "/lib/libur_adapter_level_zero.so.0",
    "system",
    "usable",
    interface="UR",
    backend="level_zero",
    platforms=(PluginPlatformFacts("Level Zero", "1.3", "level_zero", (GPU,)),),
)
DRIVER = DriverReport("/lib/libgood.so", "/etc/OpenCL/vendors", "", "usable")
CLOSED = nodes.DeviceNode(
    "/dev/dri/renderD128",
    "render",
    "crw-rw----",
    accessible=False,
    remedy="sudo usermod -aG render $USER",
)


def judged(survey: PluginSurvey, **changes: Any) -> Diagnosis:
    return judge(DRIVER, plugins=survey, **changes)


def test_an_idle_adapter_when_a_device_node_is_closed() -> None:
    """The node may be what it lacks; it has a warning of its own already."""
    idle = dataclasses.replace(
        USABLE, state="idle", platforms=(), reason="it has no platform", remedy="install a driver"
    )
    (problem, _) = judged(PluginSurvey(plugins=(idle,)), nodes=(CLOSED,)).problems
    assert (problem.severity, problem.remedy) == ("warning", CLOSED.remedy)
    (problem,) = judged(PluginSurvey(plugins=(idle,))).problems
    assert problem.remedy == "install a driver"


def test_an_adapter_without_its_vendors_library_matters_where_there_is_a_gpu() -> None:
    reason = "it has no platform: libze_loader.so.1 is not found"
    idle = dataclasses.replace(USABLE, state="idle", platforms=(), reason=reason, remedy="install")
    survey = PluginSurvey(plugins=(idle,))
    assert judged(survey).problems == ()
    node = dataclasses.replace(CLOSED, accessible=True, remedy="")
    (problem,) = judged(survey, nodes=(node,)).problems
    assert (problem.severity, problem.reason) == ("warning", reason)


def test_a_selector_that_one_interface_satisfies_is_no_problem() -> None:
    left_out = dataclasses.replace(GPU, selector="opencl:0", selected=False)
    other = dataclasses.replace(
        USABLE, interface="PI", platforms=(PluginPlatformFacts("P", "1", "opencl", (left_out,)),)
    )
    selector = SelectorReport("ONEAPI_DEVICE_SELECTOR", "selects level_zero:*")
    assert judged(PluginSurvey(selector=selector, plugins=(USABLE, other))).problems == ()
    assert not judged(PluginSurvey(selector=selector, plugins=(other,))).ok


def test_the_text_is_ascii_without_adapters() -> None:
    text = render(judged(PluginSurvey(config="/plugins.conf")))
    assert NONE in text and "looked for what /plugins.conf names" in text and text.isascii()


def test_importing_the_doctor_opens_nothing(run_python: RunPython) -> None:
    code = "import fairlead.cli.doctor.diagnosis\n"
    code += (
        "print([m for m in open('/proc/self/maps') if 'libur_' in m or 'libpi_' in m "
        "or 'libOpenCL' in m])"
    )
    assert run_python(code, fresh=True).out == "[]\n"
