"""Who may import whom: the arrows of docs/architecture.md, downwards only."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest
from helpers.support import ROOT

ALLOWED = {
    "loader": set[str](),
    "icd": {"loader"},
    "runtime": {"loader"},
    "graph": {"runtime", "loader"},
    "plugins": {"icd", "loader"},
    "conformance": {"icd", "loader"},
    "fairlead": {"loader", "icd", "runtime", "graph", "plugins", "conformance"},
}


#: What goes upwards by name, when it is used: a file, and the package whose modules it names.
LATE = {("graph/files.py", "fairlead.graph_files")}
_NAME = re.compile(r"fairlead(\.\w+)+")


class Statements(NamedTuple):
    """What these tests look at in a module: 600 whole trees would fill memory."""

    imports: list[ast.Import | ast.ImportFrom]  # anywhere
    first: list[ast.ImportFrom]  # at its top level
    classes: list[str]
    functions: list[str]  # also methods, but not properties
    names: set[str]  # texts that are names in fairlead


@functools.cache
def _parse(text: str) -> Statements:
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    texts = (node.value for node in nodes if isinstance(node, ast.Constant))
    return Statements(
        [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)],
        [node for node in tree.body if isinstance(node, ast.ImportFrom)],
        [node.name for node in tree.body if isinstance(node, ast.ClassDef)],
        [
            node.name
            for node in nodes
            if isinstance(node, ast.FunctionDef) and not _is_property(node)
        ],
        {text for text in texts if isinstance(text, str) and _NAME.fullmatch(text)},
    )


def _is_property(function: ast.FunctionDef) -> bool:
    return any("property" in ast.unparse(one) for one in function.decorator_list)


def statements(path: Path) -> Statements:
    """Read a module. Each is parsed once for all tests."""
    return _parse(path.read_text(encoding="utf-8"))


def imported_folders(path: Path, folder: str, root: Path) -> Iterator[str]:
    """Yield the other folders of fairlead that a module imports from.

    `root` is its own folder's place.
    """
    package = [
        "fairlead",
        *([] if folder == "fairlead" else [folder]),
        *path.parent.relative_to(root).parts,
    ]
    for node in statements(path).imports:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join(filter(None, [*above, node.module]))
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if (
                parts[0] == "fairlead"
                and len(parts) > 1
                and parts[1] in ALLOWED
                and parts[1] != folder
            ):
                yield parts[1]


def sources(folder: str) -> Iterator[Path]:
    """The modules of a top-level folder, without build scripts."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        if "native" not in path.relative_to(ROOT).parts:
            yield path


def module_name(path: Path) -> str:
    """The dotted name of a module of the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts if parts[0] == "fairlead" else ("fairlead", *parts))


def imported_modules(path: Path, modules: Container[str]) -> set[str]:
    """Those of `modules` that a module imports when it is imported, with their packages.

    The packages that hold the module itself are not among them, unless it imports from them.
    """
    package = module_name(path).split(".")
    own = {".".join(package[: end + 1]) for end in range(len(package))}
    package = package if path.name == "__init__.py" else package[:-1]
    found = set[str]()
    for node in statements(path).first:
        above = package[: len(package) + 1 - node.level] if node.level else []
        module = ".".join([*above, *filter(None, [node.module])])
        for alias in node.names:
            inner = f"{module}.{alias.name}"
            name = inner if inner in modules else module
            found |= {name, *set(packages_of(name)) - own}
    return {name for name in found if name in modules}


def packages_of(name: str) -> Iterator[str]:
    """The packages that hold a module, and that Python imports before it."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def circles(edges: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The groups of modules that can all reach each other."""

    def reached(start: str) -> set[str]:
        seen, ahead = set[str](), [start]
        while ahead:
            new = edges[ahead.pop()] - seen
            seen |= new
            ahead += new
        return seen

    reach = {name: reached(name) for name in edges}
    groups = (frozenset(other for other in reach[name] if name in reach[other]) for name in edges)
    return {group for group in groups if group}


@pytest.mark.slow
@pytest.mark.parametrize("folder", ALLOWED)
def test_imports_go_downwards_only(folder: str) -> None:
    root = ROOT / folder
    for path in sorted(root.rglob("*.py")):
        wrong = set(imported_folders(path, folder, root)) - ALLOWED[folder]
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


#: What recordings and their replays are made of, and the reference adapter.
CORE = (
    *("loader/base", "loader/ur", "loader/trace", "icd", "graph", "runtime"),
    *("fairlead/captured_graphs", "plugins/opencl", "plugins/sdk"),
)
#: What adapters and drivers of other APIs are made of lies among what all are made of.
NOT_CORE = ("plugins/sdk/gpu", "plugins/sdk/ze")
#: What plugs into the core, and other APIs. The core imports nothing of it, also in functions.
PLUGGED_IN = re.compile(
    r"fairlead\.(plugins\.(?!opencl\b|sdk(?!\.gpu|\.ze)\b)|conformance|cli|dask|graph_files"
    r"|loader\.(pi|ze|gpu|cuda|hip))\b|dask|distributed"
)
#: The engine `cuda` needs the driver that it runs on. loader/ur opens PI plugins as adapters. The
#: SDK makes libraries of an adapter for PI, and of drivers of Level Zero.
EXCEPT = {
    ("plugins/sdk/build.py", "fairlead.loader.ze"),
    ("plugins/sdk/pi.py", "fairlead.loader.pi"),
    ("icd/command_buffer/cuda_functions.py", "fairlead.loader.cuda"),
    ("icd/command_buffer/engines/cuda.py", "fairlead.loader.cuda"),
    ("icd/cuda_sharing.py", "fairlead.loader.cuda"),
    *((f"loader/ur/{name}.py", "fairlead.loader.pi") for name in ("adapters", "binding")),
    *((f"loader/ur/{name}.py", "fairlead.loader.pi") for name in ("devices", "preview")),
}


def find_plugged_in(path: Path) -> Iterator[str]:
    """Yield what a module imports of PLUGGED_IN, anywhere in it."""
    package = module_name(path).split(".")
    package = package if path.name == "__init__.py" else package[:-1]
    for node in statements(path).imports:
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            names = [f"{module}.{name}" for name in names]
        yield from (found[0] for name in names if (found := PLUGGED_IN.match(name)))


def test_the_core_imports_nothing_that_plugs_in() -> None:
    left_out = [ROOT / folder for folder in NOT_CORE]
    paths = (path for folder in CORE for path in sources(folder))
    paths = (path for path in paths if not set(left_out) & set(path.parents))
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in paths
        for name in find_plugged_in(path)
    }
    assert found == EXCEPT


@pytest.mark.slow
def test_few_modules_are_named_by_those_below_them() -> None:
    """Such names are for `import_module`, which the arrows do not show."""
    found = set[tuple[str, str]]()
    for path in (path for folder in set(ALLOWED) - {"fairlead"} for path in sources(folder)):
        for text in statements(path).names:
            above = text.split(".")[1]
            if above not in ALLOWED and (ROOT / "fairlead" / above).is_dir():
                package = ".".join(text.split(".")[:2])
                found.add((path.relative_to(ROOT).as_posix(), package))
    assert found == LATE


def test_the_test_sees_what_it_forbids(tmp_path: Path) -> None:
    module, deeper = tmp_path / "m.py", tmp_path / "sub" / "m.py"
    module.write_text(
        "from ..icd.abi import OPENCL\nimport fairlead.plugins.x\nfrom .search import find\n"
    )
    assert set(imported_folders(module, "loader", tmp_path)) == {"icd", "plugins"}
    module.write_text("from .icd.abi import OPENCL\nfrom fairlead import capture, graph\n")
    assert set(imported_folders(module, "fairlead", tmp_path)) == {"icd", "graph"}
    deeper.parent.mkdir()
    deeper.write_text(
        "from ...icd.abi import OPENCL\nfrom ..adapter import Adapter\nfrom .graph import x\nfrom "
        "... import loader\n"
    )
    assert set(imported_folders(deeper, "plugins", tmp_path)) == {"icd", "loader"}


def test_the_common_ground_knows_no_api() -> None:
    above = {module_name(path) for path in sources("loader") if path.parent.name != "base"}
    for path in sorted((ROOT / "loader/base").glob("*.py")):
        assert not imported_modules(path, above), path


@pytest.mark.slow
def test_no_modules_import_each_other_in_a_circle() -> None:
    modules = {module_name(path): path for folder in ALLOWED for path in sources(folder)}
    edges = {name: imported_modules(path, modules) - {name} for name, path in modules.items()}
    assert circles(edges) == set()


def test_the_test_finds_circles() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str]()}
    assert circles(edges) == {frozenset({"a", "b", "c"})}
    assert circles({"a": {"b"}, "b": set[str]()}) == set()


def test_the_packages_of_a_module_count_as_imported() -> None:
    """So a package that imports what imports its modules is a circle, too."""
    package = "fairlead.icd.command_buffer.engines"
    modules = {module_name(path) for path in sources("icd")}
    edges = {
        path: imported_modules(ROOT / f"icd/{path}.py", modules)
        for path in ("command_buffer/launch_cost", "command_buffer/engines/direct")
    }
    assert {package, f"{package}.replay"} <= edges["command_buffer/launch_cost"]
    assert package not in edges["command_buffer/engines/direct"]


def classes() -> Iterator[tuple[str, str]]:
    """Yield the name of each class of a module, and the module."""
    for path in (path for folder in ALLOWED for path in sources(folder)):
        for name in statements(path).classes:
            yield name, module_name(path)


def namesakes(named: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The names that several classes have, with their modules.

    An underscore makes no other name of it. But a private class is only compared with those that
    its folder may import, and that may import its folder: nobody meets it with the others.
    """
    places: dict[str, list[tuple[str, str]]] = {}
    for name, module in named:
        places.setdefault(name.lstrip("_"), []).append((name, module))
    return {
        name: [module for _, module in found]
        for name, found in places.items()
        if any(
            not (one.startswith("_") or other.startswith("_")) or _meet(first, second)
            for (one, first), (other, second) in combinations(found, 2)
        )
    }


def _meet(*modules: str) -> bool:
    """Whether one of two modules may import the other, by their folders."""
    second = (module.split(".")[1] for module in modules)
    one, other = (folder if folder in ALLOWED else "fairlead" for folder in second)
    return one == other or one in ALLOWED[other] or other in ALLOWED[one]


def test_a_class_has_its_name_alone() -> None:
    """Where one thing exists in several layers, the name says the layer."""
    assert namesakes(classes()) == {}


def test_the_test_finds_namesakes() -> None:
    graph, runtime = ("Node", "fairlead.graph.node"), ("Node", "fairlead.runtime.node")
    icd, private = ("Node", "fairlead.icd.node"), ("_Node", "fairlead.runtime.node")
    other, front = ("Other", "fairlead.graph.node"), ("_Node", "fairlead.captured_graphs.node")
    assert namesakes([graph, other]) == namesakes([icd, private]) == {}
    for pair in ([graph, runtime], [icd, runtime], [graph, private], [icd, front], [graph, graph]):
        assert namesakes(pair) == {"Node": [module for _, module in pair]}


#: Words that begin no function's name, because they say neither what it does nor what it returns.
_NO_VERBS = """a after another any before between by checked either given in just made most named no
not now old only other own same several some still such that the their then there this through
together too under until up very what where which while whole without wrong"""
NO_VERBS = frozenset(_NO_VERBS.split())
#: Nodes and handlers that are named for when they run, and methods of the public API.
NAMED_FOR_WHEN = {"after", "before", "in_order", "while_loop"}


def say_nothing(names: Iterable[str]) -> set[str]:
    """Return the functions whose names begin with a word that says nothing."""
    return {
        name for name in set(names) - NAMED_FOR_WHEN if name.strip("_").split("_")[0] in NO_VERBS
    }


def test_functions_are_named_for_what_they_do() -> None:
    """The conformance suite has makers of cases, whose names read as parts of its rules."""
    folders = [folder for folder in ALLOWED if folder != "conformance"]
    functions = (statements(path).functions for folder in folders for path in sources(folder))
    assert say_nothing(name for names in functions for name in names) == set()


def test_the_test_finds_names_that_say_nothing() -> None:
    wrong = {"_whole", "now", "made", "no", "several_graphs"}
    assert say_nothing({*wrong, "new_queue", "after", "notify", "find_whole"}) == wrong


def test_the_native_code_knows_no_python() -> None:
    for path in (
        *(ROOT / "icd/native").rglob("*.[ch]"),
        *(ROOT / "plugins/sdk/native").glob("*.[ch]"),
    ):
        assert "Python.h" not in path.read_text(encoding="utf-8")
