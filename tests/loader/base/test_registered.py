"""Entry points of installed packages."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest
from helpers.support import RunPython

from fairlead.loader.base.errors import FairleadError
from fairlead.loader.base.registered import Registered, list_registered


def install(folder: Path, name: str, text: str | None) -> str:
    """Write the metadata of a package, and return the folder."""
    (folder / name).mkdir(parents=True)
    if text is not None:
        (folder / name / "entry_points.txt").write_text(text, encoding="utf-8")
    return str(folder)


def test_groups_and_values_are_read(tmp_path: Path) -> None:
    text = """
[console_scripts]
other = other:main

[things]
# a comment
; another one
b=two.parts:thing
a = one : thing [extra]
module = one
no value
\x1b[31mred = one:thing
[more]
c = three:thing
"""
    folder = install(tmp_path, "My.Package-1.2.dist-info", text)
    assert list_registered("things", [folder]) == (
        Registered("a", "one", "thing", "my_package 1.2"),
        Registered("b", "two.parts", "thing", "my_package 1.2"),
        Registered("module", "one", "", "my_package 1.2"),
    )
    assert [one.name for one in list_registered("more", [folder])] == ["c"]
    assert list_registered("nothing", [folder]) == ()


def test_the_first_package_of_a_name_counts(tmp_path: Path) -> None:
    """So it is with imports. One that registers nothing hides a later one, too."""
    row = "[things]\na = {}:thing"
    folders = [
        install(tmp_path / "first", "one-2.dist-info", row.format("new")),
        install(tmp_path / "second", "one-1.dist-info", row.format("old")),
        install(tmp_path / "second", "empty.egg-info", None),
        install(tmp_path / "third", "Empty-1-py3.11.egg-info", row.format("hidden")),
    ]
    found = list_registered("things", [*folders, str(tmp_path / "gone"), __file__])
    assert found == (Registered("a", "new", "thing", "one 2"),)


def test_it_reads_what_importlib_reads() -> None:
    found = {(one.name, one.module, one.variable) for one in list_registered("console_scripts")}
    theirs = metadata.entry_points(group="console_scripts")
    assert found == {(one.name, one.module, one.attr) for one in theirs}


def test_what_is_ours_is_told_apart() -> None:
    own = {one.name for one in list_registered("fairlead.adapters") if one.is_own}
    assert own == {"fairlead", "fairlead_cuda", "fairlead_hip", "fairlead_level_zero"}
    assert not Registered("a", "b", "c", "fairlead_more 1").is_own


def test_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "registered_good.py").write_text("thing = 5")
    (tmp_path / "registered_bad.py").write_text("raise SystemError('it fails')")
    monkeypatch.syspath_prepend(tmp_path)
    assert Registered("a", "registered_good", "thing", "good 1").load() == 5
    for module, variable, why in (
        ("registered_bad", "thing", "SystemError: it fails"),
        ("registered_gone", "thing", "ModuleNotFoundError: No module named 'registered_gone'"),
        ("registered_good", "other", "AttributeError: "),
    ):
        with pytest.raises(FairleadError) as caught:
            Registered("a", module, variable, "some_package 1").load()
        assert f"some_package 1 cannot be imported: {why}" in caught.value.message
        assert caught.value.remedy.endswith("pip uninstall some_package")
    sys.modules.pop("registered_good")


#: Prints what was read of the metadata of packages, and whether importlib.metadata was imported.
WATCHED = """
import sys
opened = []
sys.addaudithook(lambda event, given: event == "open" and opened.append(str(given[0])))
{code}
print([path for path in opened if path.endswith("entry_points.txt")])
print("importlib.metadata" in sys.modules)
"""


@pytest.mark.parametrize(
    "code",
    [
        "import fairlead; fairlead.capture",
        "import fairlead.cli.main",
        "from fairlead.cli.main import main; main(['run', '--help'], standalone_mode=False)",
    ],
)
def test_the_core_reads_no_metadata(code: str, run_python: RunPython) -> None:
    lines = run_python(WATCHED.format(code=code), fresh=True).out.splitlines()
    assert lines[-2:] == ["[]", "False"]


def test_the_search_for_adapters_imports_no_importlib_metadata(run_python: RunPython) -> None:
    code = "from fairlead.loader.ur.discovery import find_adapters; find_adapters()"
    read, imported = run_python(WATCHED.format(code=code), fresh=True).out.splitlines()
    assert "fairlead" in read and imported == "False"
