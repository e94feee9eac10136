"""Builds drop-in shared libraries.

`build_adapter(module, output)` builds one of an adapter that is written in Python, and
`build_level_zero_driver(module, output)` one of a Level Zero driver.
`build_plugin(adapter, output)` builds a PI plugin over any Unified Runtime adapter.

A library is a copy of a shell (loader/base/shell_copies.py), so building takes milliseconds and no
compiler. Here a module's text is checked before.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import symtable
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

from ...loader.base.shell_copies import configure


def build_adapter(
    module: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    trial: bool = False,
) -> Path:
    """Build the shared library of an adapter. The module is not imported in this process.

    Args:
        module: an importable module's name, or the path of a `.py` file.
        output: a file or a folder. By default it is `libur_adapter_NAME.so.0` in the current
            folder, where NAME is the module's without `_adapter`.
        trial: whether a child process imports the module once, to find what is wrong with it.

    Returns:
        The path of the library.

    Raises:
        FileNotFoundError: there is no such file.
        ModuleNotFoundError: there is no such module.
        ValueError: the module's text shows that it has no variable `adapter`, or an entry point or
            a parameter that Unified Runtime does not have. Or the module cannot be imported.
    """
    name, short = _find(module, "adapter", "fairlead.plugins.Adapter", trial)
    short = short.removesuffix("_adapter")
    return _build("libfairlead_shell.so", name, Path(output or "."), f"libur_adapter_{short}.so.0")


def build_level_zero_driver(
    module: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    trial: bool = False,
) -> Path:
    """Build the shared library of a Level Zero driver. The module is not imported in this process.

    Args:
        module: an importable module's name, or the path of a `.py` file.
        output: a file or a folder. By default it is `libze_NAME.so.1` in the current folder, where
            NAME is the module's without `_driver`.
        trial: see `build_adapter`.

    Returns:
        The path of the library.

    Raises:
        FileNotFoundError: there is no such file.
        ModuleNotFoundError: there is no such module.
        ValueError: the module's text shows that it has no variable `driver`, or an entry point or
            a parameter that Level Zero does not have. Or the module cannot be imported.
    """
    name, short = _find(module, "driver", "fairlead.plugins.sdk.ze.LevelZeroDriver", trial)
    short = short.removesuffix("_driver")
    return _build("libfairlead_ze_shell.so", name, Path(output or "."), f"libze_{short}.so.1")


def _find(module: str | os.PathLike[str], variable: str, cls: str, trial: bool) -> tuple[str, str]:
    """Return what a configuration calls a module, and its short name.

    Raises:
        FileNotFoundError: there is no such file.
        ModuleNotFoundError: there is no such module.
        ValueError: the module's text shows that it has no such variable, or a wrong entry point; or
            the trial failed.
    """
    name = os.fspath(module)
    if name.endswith(".py"):
        os.stat(name)  # its error names the path as given; since Python 3.13 `resolve` does not
        path = Path(name).resolve()
        name, short = str(path), path.stem
        spec = importlib.util.spec_from_file_location(short, path)
    else:
        short = name.rpartition(".")[2]
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    source = _read_source(spec)
    if source is not None and not _may_have(source, variable):
        raise ValueError(
            f'{name} has no variable `{variable}`: write `{variable} = {cls}("{short}")` in it'
        )
    for wrong in _list_wrong_entries(source, variable) if source else ():
        raise ValueError(f"{name}, {wrong}")
    if trial:
        from .trial_import import find_fault  # setup.py runs this file without fairlead

        if fault := find_fault(name, variable):
            raise ValueError(fault)
    return name, short


def _read_source(spec: ModuleSpec | None) -> str | None:
    """Return the text of a module, None if it has none.

    Raises:
        ValueError: the text is not Python.
    """
    read = getattr(spec.loader, "get_source", None) if spec else None
    source = read(spec.name) if spec and read else None
    try:
        ast.parse(source or "", (spec and spec.origin) or "")
    except SyntaxError as error:
        raise ValueError(f"{error.filename}, line {error.lineno}: {error.msg}") from None
    return source


def _may_have(source: str, variable: str) -> bool:
    """Return whether a module's text may bind a name."""
    names = symtable.symtable(source, "", "exec").get_symbols()
    bound = {symbol.get_name() for symbol in names if symbol.is_assigned() or symbol.is_imported()}
    hidden = {"__getattr__", "globals", "exec"}.intersection(symbol.get_name() for symbol in names)
    stars = any(
        isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
        for node in ast.walk(ast.parse(source))
    )
    return variable in bound or bool(hidden) or stars


def _list_wrong_entries(source: str, variable: str) -> Iterator[str]:
    """Yield what is wrong with the entry points that a module's text declares."""
    from ...loader.ur.abi import UR  # only here: most of what imports this file builds nothing
    from ...loader.ze.abi import ZE

    api, title = (UR, "Unified Runtime") if variable == "adapter" else (ZE, "Level Zero")
    for node in ast.walk(ast.parse(source)):
        for name, body in _list_entries(node, variable):
            function = api.functions.get(name)
            if function is None:
                yield f"line {body.lineno}: {title} has no function {name}"
            elif isinstance(body, (ast.FunctionDef, ast.Lambda)):
                known = [p.name for p in function.parameters]
                rows = body.args.posonlyargs, body.args.args, body.args.kwonlyargs
                for one in (one.arg for row in rows for one in row if one.arg not in known):
                    has = ", ".join(known)
                    yield f"line {body.lineno}: {name} has no parameter {one}; it has {has}"


def _list_entries(node: ast.AST, variable: str) -> Iterator[tuple[str, ast.expr | ast.FunctionDef]]:
    """Yield the names and bodies of the entry points that a statement or a call declares."""

    def calls(one: ast.expr, method: str) -> bool:
        return isinstance(one, ast.Attribute) and ast.unparse(one) == f"{variable}.{method}"

    if isinstance(node, ast.FunctionDef):
        if any(calls(one, "entry") for one in node.decorator_list):
            yield node.name, node
    elif isinstance(node, ast.Call) and calls(node.func, "declare"):
        yield from ((one.arg, one.value) for one in node.keywords if one.arg)


def build_plugin(adapter: str | os.PathLike[str], output: str | os.PathLike[str]) -> Path:
    """Build a PI plugin, for DPC++ up to 2024.2, over a Unified Runtime adapter.

    Args:
        output: a file or a folder, in which it is called libpi_opencl.so.

    Returns:
        The path of the plugin.

    Raises:
        FileNotFoundError: there is no such library.
    """
    # A link is not resolved, because what the library needs lies beside the link.
    path = Path(adapter).absolute()
    if not path.exists():
        raise FileNotFoundError(path)
    return _build("libfairlead_pi_shell.so", str(path), Path(output), "libpi_opencl.so")


def _build(shell: str, module: str, output: Path, name: str) -> Path:
    target = output / name if output.is_dir() else output
    configure(Path(__file__).with_name(shell), target, module)
    return target.resolve()
