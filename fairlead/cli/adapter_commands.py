"""The options of `fairlead conformance`, `build-adapter` and `adapter`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from ..loader.base import shell_copies
from ..loader.base.errors import FairleadError
from ..loader.base.registered import Registered
from .output import keep_stdout_to_ourselves


@click.command()
@click.option(
    "--suite",
    default="",
    metavar="NAME",
    help="Run this suite, which a package registers. [default: that of the library's interface]",
)
@click.option(
    "--area",
    default="",
    metavar="NAME",
    help="Run the cases of one area only, such as command-buffer.",
)
@click.option(
    "--device",
    default="",
    metavar="DEVICE",
    help="Test the device with this number or selector, such as opencl:cpu. [default: the first]",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one object: the library, the areas, and every case.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    metavar="S",
    help="Give a case S seconds.",
)
@click.argument("library", type=click.Path(path_type=Path))
@click.pass_context
def conformance(
    ctx: click.Context,
    library: Path,
    suite: str,
    area: str,
    device: str,
    as_json: bool,
    timeout: float,
) -> None:
    """Test an adapter, a PI plugin, an OpenCL or Level Zero driver against its specification.

    LIBRARY is the library's file; its interface follows from its symbols. Cases run in child
    processes: one that crashes or hangs has failed, and the others continue. The output says
    first how to read it. A table counts passed, failed and unsupported cases for each area; what
    the library does not implement is unsupported. Each failure is a line: entry point, rule,
    expected, got.

    The exit code is 1 if a case failed, 2 if there is no such suite, area or device.
    """
    from .conformance import run

    keep_stdout_to_ourselves()
    given = {"suite": suite, "area": area, "device": device}
    ctx.exit(run(library, **given, as_json=as_json, timeout=timeout))


@click.command("build-adapter")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write this library, or into this folder. [default: libur_adapter_NAME.so.0 here]",
)
@click.option("--level-zero", is_flag=True, help="Build a Level Zero driver, libze_NAME.so.1.")
@click.argument("module", metavar="MODULE_OR_FILE")
def build_adapter(module: str, output: Path | None, level_zero: bool) -> None:
    """Build a Unified Runtime adapter, a shared library, from a Python module or a .py file.

    The module has the adapter in a variable `adapter`, or a Level Zero driver in a variable
    `driver`. It is imported once, in a child process, and what is wrong with it is told. The
    library contains the module's name and the path of this Python environment, but no code of the
    module. So it need not be built again when the module changes. The command prints the library's
    path.
    """
    from ..plugins.sdk import build

    try:
        made = build.build_level_zero_driver if level_zero else build.build_adapter
        path = made(module, output, trial=True)
    except ImportError as error:
        hint = f"; is the file {module}.py meant?" if Path(f"{module}.py").exists() else ""
        raise click.ClickException(f"{error}{hint}") from None
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    click.echo(str(path))
    variable = "ZE_ENABLE_ALT_DRIVERS" if level_zero else "UR_ADAPTERS_FORCE_LOAD"
    click.echo(f"use it: {variable}={_quote_list_item(path)} PROGRAM", err=True)
    if not shell_copies.find_python_library():
        click.echo(
            "warning: this Python was built without a shared library: "
            "only programs that it runs can use the adapter",
            err=True,
        )


def _quote_list_item(path: Path) -> str:
    """Return a path as a loader reads it in a list, and a shell in a command."""
    return shlex.quote(f'"{path}"' if set(str(path)) & set(":;,") else str(path))


class _AdapterCommand(click.Command):
    """Has an option for each adapter that a package registers."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        rows = _list_adapters().items()
        return [
            *(
                click.Option([f"--{name.replace('_', '-')}"], is_flag=True, help=_describe(one))
                for name, one in rows
            ),
            *super().get_params(ctx),
        ]


def _list_adapters() -> dict[str, Registered]:
    """Return the registered adapters by the names of their options, without the usual one."""
    from ..loader.base.registered_libraries import ADAPTERS

    named = (one for one in ADAPTERS.list() if one.name.isidentifier())
    found = {one.name.removeprefix("fairlead_"): one for one in named}
    return {name: one for name, one in found.items() if name not in ("fairlead", "pi", "help")}


def _describe(one: Registered) -> str:
    return f"Print the path of the adapter {one.module}, of the package {one.package}."


@click.command(cls=_AdapterCommand)
@click.option(
    "--pi",
    is_flag=True,
    help="Print the path of the PI plugin, for DPC++ up to 2024.2. "
    "That loads it by the name libpi_opencl.so.",
)
def adapter(**chosen: bool) -> None:
    """Print the path of fairlead's own Unified Runtime adapter, which drives any OpenCL device.

    An option chooses another adapter. Each adapter that an installed package registers has one.

    \b
    UR_ADAPTERS_FORCE_LOAD=$(fairlead adapter) PROGRAM
    """
    from .. import plugins
    from ..loader.base.registered_libraries import ADAPTERS

    names = [name for name, wanted in chosen.items() if wanted]
    if len(names) > 1:
        raise click.UsageError("these are different libraries: give one of the options")
    if not names:
        path = plugins.reference_adapter()
    elif names == ["pi"]:
        path = plugins.reference_plugin()
    else:
        path = ADAPTERS.find_library(_list_adapters()[names[0]])
    if not os.path.exists(path):
        raise FairleadError(
            f"the library {path} is missing",
            remedy="install fairlead again, from its wheel or its source",
        )
    click.echo(path)
