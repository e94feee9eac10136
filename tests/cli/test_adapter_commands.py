"""`fairlead build-adapter` and `fairlead adapter` on the command line."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from helpers.support import ROOT, RunPython

from fairlead import plugins
from fairlead.cli.main import main
from fairlead.loader.base import shell_copies

TOY = ROOT / "examples/toy_adapter.py"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def test_the_path_is_printed_and_how_to_use_it(tmp_path: Path) -> None:
    done = run("build-adapter", TOY, "-o", tmp_path / "toy.so")
    assert done.exit_code == 0
    assert done.stdout == f"{tmp_path / 'toy.so'}\n"
    assert done.stderr == f"use it: UR_ADAPTERS_FORCE_LOAD={tmp_path / 'toy.so'} PROGRAM\n"
    assert (tmp_path / "toy.so").stat().st_mode & 0o111


def test_a_level_zero_driver_is_built(tmp_path: Path) -> None:
    (tmp_path / "own_driver.py").write_text("driver = None\n", encoding="utf-8")
    done = run("build-adapter", "--level-zero", tmp_path / "own_driver.py", "-o", tmp_path)
    assert done.stdout == f"{tmp_path / 'libze_own.so.1'}\n"
    assert done.stderr == f"use it: ZE_ENABLE_ALT_DRIVERS={tmp_path / 'libze_own.so.1'} PROGRAM\n"


def test_without_an_output_it_is_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("build-adapter", TOY).stdout == f"{tmp_path / 'libur_adapter_toy.so.0'}\n"
    (tmp_path / "folder").mkdir()
    given = "build-adapter", "fairlead.plugins.opencl", "-o", "folder"
    assert run(*given).stdout == f"{tmp_path / 'folder/libur_adapter_opencl.so.0'}\n"


def test_a_path_that_a_list_or_a_shell_would_tear_apart_is_quoted(tmp_path: Path) -> None:
    done = run("build-adapter", TOY, "-o", tmp_path / "a:b c.so")
    (setting,) = [word for word in shlex.split(done.stderr) if word.startswith("UR_")]
    assert setting == f'UR_ADAPTERS_FORCE_LOAD="{tmp_path / "a:b c.so"}"'


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("gone.py", "Error: gone.py: No such file or directory"),
        ("no_such_module", "Error: No module named 'no_such_module'"),
        ("nearby", "Error: No module named 'nearby'; is the file nearby.py meant?"),
        ("long\nname.py", "a path has a line break in it"),
        (
            "empty.py",
            "empty.py has no variable `adapter`: write `adapter = "
            'fairlead.plugins.Adapter("empty")` in it',
        ),
        (
            "importable",
            "Error: importable has no variable `adapter`: write `adapter = "
            'fairlead.plugins.Adapter("importable")` in it',
        ),
        ("wrong.py", "wrong.py, line 2: "),
        ("entry.py", "entry.py, line 3: Unified Runtime has no function urQueueFinnish"),
        ("declared.py", "declared.py, line 2: Unified Runtime has no function urQueueFinnish"),
        ("parameter.py", "parameter.py, line 3: urQueueFinish has no parameter q; it has hQueue"),
        ("indirect.py", "indirect.py, line 2: Unified Runtime has no function urQueueFinnish"),
        ("query.py", "query.py, line 2: urDeviceGetInfo has no property UR_DEVICE_INFO_NAM"),
        ("constant.py", "constant.py, line 2: there is no 'UR_DEVICE_TYPE_CPUU'"),
        ("raises.py", "raises.py, line 2: division by zero"),
        ("ends.py", "ends.py: it ended the process with exit code 3 while importing it"),
        ("lambda.py", "lambda.py, line 2: urUSMFree has no parameter mem; it has hContext, pMem"),
    ],
)
def test_what_cannot_be_built_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/importable.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "folder")
    (tmp_path / "nearby.py").touch()
    (tmp_path / "long\nname.py").write_text("adapter = 1")
    (tmp_path / "empty.py").touch()
    (tmp_path / "wrong.py").write_text("adapter = 1\nclass:")
    for name, text in {
        "entry": "@adapter.entry\ndef urQueueFinnish(hQueue): ...",
        "declared": "adapter.declare(urQueueFinnish=None)",
        "parameter": "@adapter.entry\ndef urQueueFinish(q): ...",
        "lambda": "adapter.declare(urUSMFree=lambda mem: None)",
    }.items():
        (tmp_path / f"{name}.py").write_text(f"adapter = 1\n{text}")
    made = "from fairlead.plugins import Adapter; adapter = Adapter('mine')"
    for name, text in {
        "indirect": "declare = adapter.declare; declare(urQueueFinnish=print)",
        "query": "adapter.info('urDeviceGetInfo', {'UR_DEVICE_INFO_NAM': 'x'})",
        "constant": "from fairlead.plugins import UR; UR['UR_DEVICE_TYPE_CPUU']",
        "raises": "1 / 0",
        "ends": "import os; os._exit(3)",
    }.items():
        (tmp_path / f"{name}.py").write_text(f"{made}\n{text}")
    done = run("build-adapter", module)
    assert done.exit_code == 1 and says in done.stderr and done.stdout == ""
    assert not list(tmp_path.glob("*.so*"))


def test_an_output_that_cannot_be_written_is_an_error() -> None:
    done = run("build-adapter", TOY, "-o", "/proc/toy.so")
    assert done.exit_code == 1 and done.stderr.startswith("Error: /proc/")


def test_a_python_without_a_shared_library_is_warned_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_copies, "find_python_library", lambda: "")
    done = run("build-adapter", TOY, "-o", tmp_path)
    assert (
        done.exit_code == 0
        and "warning: this Python was built without a shared library" in done.stderr
    )


def test_the_reference_adapters_path() -> None:
    assert run("adapter").stdout == f"{plugins.reference_adapter()}\n"
    assert run("adapter", "--pi").stdout == f"{plugins.reference_plugin()}\n"
    assert run("adapter", "--level-zero").stdout == f"{plugins.level_zero_adapter()}\n"
    assert run("adapter", "--level-zero", "--pi").exit_code == 2
    assert Path(plugins.reference_adapter()).name == "libur_adapter_fairlead.so.0"
    assert run("adapter", "--cuda").stdout == f"{plugins.cuda_adapter()}\n"
    assert Path(plugins.cuda_adapter()).name == "libur_adapter_fairlead_cuda.so.0"
    assert run("adapter", "--hip").stdout == f"{plugins.hip_adapter()}\n"
    assert Path(plugins.hip_adapter()).name == "libur_adapter_fairlead_hip.so.0"
    refused = run("adapter", "--cuda", "--hip")
    assert refused.exit_code == 2 and "give one of the options" in refused.stderr


def test_a_library_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "reference_adapter", lambda: "/nowhere/lib.so")
    done = run("adapter")
    assert done.exit_code == 1 and "/nowhere/lib.so is missing" in done.stderr
    assert "install fairlead again" in done.stderr


def test_the_commands_import_no_adapter(run_python: RunPython) -> None:
    code = (
        "import sys; from fairlead.cli.main import main; main(['adapter'], "
        "standalone_mode=False); print(sys.modules.keys())"
    )
    loaded = run_python(code, fresh=True).out
    assert "'fairlead.plugins'" in loaded and "fairlead.plugins.opencl" not in loaded
