"""Loaders of Unified Runtime of each release get the tables of that release, by what they
export."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.support import ROOT, CompileC, Output, RunPython

from fairlead.loader.ur.abi import API_VERSION, UR, name_getter
from fairlead.plugins import build_adapter

#: A loader exports functions, and asks an adapter for its tables.
LOADER = """
#define EXPORT __attribute__((visibility("default")))
EXPORT int ask(int (*get)(unsigned version, void **table), void **table) {{
    return get({version}, table);
}}
{functions}
"""

#: Prints for each table the code, and the functions whose entries are not where they belong.
ASK = """
import ctypes, json, sys
loader, adapter = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
for get, names in json.loads(sys.argv[3]).items():
    table = (ctypes.c_void_p * 64)()
    code = loader.ask(getattr(adapter, get), table)
    of = lambda name: ctypes.cast(getattr(adapter, name), ctypes.c_void_p).value
    print(code, [name for entry, name in zip(table, names) if name and entry != of(name)],
        [number for number, entry in enumerate(table) if number < len(names) and not entry])
"""
SUCCESS, UNINITIALIZED = 0, 37


class Loaders:
    """Builds loaders, and lets them ask an adapter."""

    def __init__(self, compile_c: CompileC, run_python: RunPython, folder: Path) -> None:
        self._compile, self._run, self._folder = compile_c, run_python, folder
        self._adapter = build_adapter(ROOT / "examples/toy_adapter.py", folder)

    def ask(self, layout: str, functions: list[str], **variables: str) -> Output:
        """Ask for the tables of a release. `functions`: what the loader exports."""
        source, version = self._folder / "loader.c", API_VERSION
        lines = (f"EXPORT void {name}(void); void {name}(void) {{}}" for name in functions)
        source.write_text(LOADER.format(version=version, functions="\n".join(lines)))
        loader = self._compile(source, self._folder / "libur_loader.so.0")
        # functions with the parameters of 2025.3 are not exported
        tables = {
            name_getter(table): [
                None if (name or "_2025_3").endswith("_2025_3") else name for name in names
            ]
            for table, names in UR.layouts[layout].items()
        }
        given = str(loader), str(self._adapter), json.dumps(tables)
        return self._run(ASK, *given, env=variables, fresh=True)


@pytest.fixture
def loaders(compile_c: CompileC, run_python: RunPython, tmp_path: Path) -> Loaders:
    return Loaders(compile_c, run_python, tmp_path)


def exported_by(layout: str) -> list[str]:
    """Return the functions that the loader of a release exports."""
    tables = UR.layouts[layout].values()
    return [name.removesuffix("_2025_3") for names in tables for name in names if name]


def all_right(layout: str) -> str:
    """Return what is printed if every entry is where that release has it."""
    return f"{SUCCESS} [] []\n" * len(UR.layouts[layout])


@pytest.mark.parametrize("layout", UR.layouts)
def test_a_loader_gets_the_tables_of_its_release(layout: str, loaders: Loaders) -> None:
    assert loaders.ask(layout, exported_by(layout)) == Output(0, all_right(layout), "")


@pytest.mark.parametrize("layout", list(UR.layouts)[1:])
def test_the_variable_is_stronger(layout: str, loaders: Loaders) -> None:
    newest = exported_by(next(iter(UR.layouts)))
    done = loaders.ask(layout, newest, FAIRLEAD_UR_LAYOUT=layout)
    assert done == Output(0, all_right(layout), "")


def test_what_exports_nothing_gets_the_newest_tables(loaders: Loaders) -> None:
    newest = next(iter(UR.layouts))
    assert loaders.ask(newest, []).out == all_right(newest)


def test_a_loader_of_no_known_release_is_refused_in_words(loaders: Loaders) -> None:
    """It would call wrong functions."""
    oldest = list(UR.layouts)[-1]
    functions = [name for name in exported_by(oldest) if name != "urProgramBuildExp"]
    done = loaders.ask(oldest, functions)
    assert {line.split()[0] for line in done.out.splitlines()} == {str(UNINITIALIZED)}
    found = done.err.count("libur_loader.so.0 is not of a release of Unified Runtime that is known")
    assert found == 1
    assert "set FAIRLEAD_UR_LAYOUT to one whose tables it has" in done.err
    done = loaders.ask(oldest, functions, FAIRLEAD_UR_LAYOUT=oldest)
    assert done == Output(0, all_right(oldest), "")
