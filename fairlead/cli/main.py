"""The command `fairlead`: its options, and what its subcommands print.

An error of fairlead is printed as its message, with exit code 1. Only terminals get colours.
"""

from __future__ import annotations

import errno
import io
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..loader.base.errors import FairleadError, NotFoundError
from ..loader.base.query import printable
from .graph_commands import compare, record, replay, show
from .output import keep_stdout_to_ourselves


class _Group(click.Group):
    """Prints our errors as click prints its own: the message, no traceback."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List each command with its whole first sentence."""
        rows = [
            (name, self.commands[name].get_short_help_str(sys.maxsize))
            for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FairleadError as error:
            click.ClickException(printable(str(error))).show()
            ctx.exit(getattr(error, "exit_code", 1))
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            remedy = "raise the limit on open files: ulimit -n 1024"
            click.ClickException(f"{error}\n  remedy: {remedy}").show()
            ctx.exit(1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fairlead", prog_name="fairlead", message="%(prog)s %(version)s")
def main() -> None:
    """Find OpenCL drivers, adapters and PI plugins, say why one is missing, and trace calls."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # a driver's or a file's name may hold what this locale has no character for
            stream.reconfigure(errors="backslashreplace")


_interface = click.option(
    "--interface",
    "interfaces",
    multiple=True,
    type=click.Choice(["opencl", "ur", "pi", "ze", "cuda", "hip"], case_sensitive=False),
    help="Take devices of OpenCL drivers, Unified Runtime adapters, PI plugins, Level Zero "
    "drivers, the CUDA driver or HIP only. The option can be repeated.",
)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print an array of objects.")
@_interface
def devices(as_json: bool, interfaces: tuple[str, ...]) -> None:
    """List the devices of usable drivers, adapters and PI plugins.

    The first column is what `fairlead info` takes. For an OpenCL device it is platform:device. For
    another one it is the interface, and the value of ONEAPI_DEVICE_SELECTOR that selects that
    device alone. A column "selected" says which devices this variable, SYCL_DEVICE_FILTER or
    SYCL_BE leaves out, if any.

    The exit code is 1 if there is no device. With --json that is an empty array, and exit code 0.
    """
    from .columns import terminal_width
    from .devices import as_table, each_device

    rows = [row for row, _ in _each(each_device, interfaces, as_json)]
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        click.echo("\n".join(as_table(rows, terminal_width())))


def _each(
    find: Callable[[Sequence[str], list[str]], Iterator[Any]],
    interfaces: Sequence[str],
    as_json: bool,
) -> Iterator[Any]:
    """Yield what `find` finds; warnings go to stderr.

    With JSON, finding nothing is a warning as well.
    """
    keep_stdout_to_ourselves()
    if as_json:  # what these variables print goes to sys.stdout
        for name in ("SYCL_PI_TRACE", "SYCL_UR_TRACE"):
            os.environ.pop(name, None)
    warnings: list[str] = []
    try:
        yield from find(interfaces, warnings)
    except NotFoundError as error:
        if not as_json:
            raise
        warnings.append(str(error))
    finally:
        for warning in warnings:
            click.echo(f"warning: {printable(warning)}", err=True)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print an array of objects.")
@_interface
@click.argument("device", default="")
def info(device: str, interfaces: tuple[str, ...], as_json: bool) -> None:
    """Describe devices: versions, limits, memory, USM, images and extensions.

    DEVICE is a device as `fairlead devices` lists it, such as 0:1 or opencl:0, or a part of its
    name. Without it all devices are described. A query that a device does not answer is left out.

    \b
    fairlead info                          every device
    fairlead info 0:0                      the first device of the first OpenCL platform
    fairlead info --interface ur opencl:0  a device as a Unified Runtime adapter sees it
    """
    from .columns import terminal_width
    from .info import describe_devices, render

    found = list(_each(partial(describe_devices, wanted=device), interfaces, as_json))
    if as_json:
        click.echo(json.dumps([one.as_dict() for one in found], indent=2))
    else:
        click.echo("\n\n".join(render(one, terminal_width()) for one in found))


@main.command()
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one object: all the facts, the problems, and `ok`.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Give a probe S seconds. [default: FAIRLEAD_PROBE_TIMEOUT, else 20]",
)
@click.option("--short", is_flag=True, help="Print the verdict only.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, timeout: float | None, short: bool) -> None:
    """Explain every driver, adapter and PI plugin: what was found, what was refused, what to do.

    The verdict comes first: what fairlead sees, what PyOpenCL sees, what programs see that load
    libOpenCL.so.1, and each problem with the next step.

    The exit code is 1 after an error: no driver is usable; PyOpenCL or libOpenCL.so.1 finds none; a
    driver, adapter or plugin was found and refused, unless its package never shipped it; a variable
    or a manifest names something missing, or only fairlead understands it; this user has no access
    to a cache or a device that drivers need; PyOpenCL lacks its loader. After warnings it is 0.
    """
    from .doctor.diagnosis import examine
    from .doctor.report import render

    keep_stdout_to_ourselves()
    facts = examine(timeout)
    if as_json:
        click.echo(json.dumps(facts.as_dict(), indent=2))
    else:
        click.echo(
            render(
                facts,
                lambda text, colour: click.style(text, fg=colour or None, bold=True),
                short=short,
                width=shutil.get_terminal_size().columns if sys.stdout.isatty() else 0,
            )
        )
    ctx.exit(0 if facts.ok else 1)


@main.command()
@click.option("--loader", is_flag=True, help="Put fairlead's own libOpenCL.so.1 in front as well.")
def env(loader: bool) -> None:
    """Print shell commands after which clinfo, C programs and PyOpenCL find fairlead's drivers.

    \b
    eval "$(fairlead env)"

    They name a directory of manifests in OCL_ICD_VENDORS: one for each usable driver, with the path
    that was found for a broken installation. What else a repair does, only fairlead's programs get;
    remarks on stderr say so. With --loader all programs get it that find libOpenCL.so.1 by
    LD_LIBRARY_PATH.
    """
    from .env import shell_commands

    keep_stdout_to_ourselves()
    lines, remarks = shell_commands(loader=loader)
    for line in lines:
        click.echo(line)
    for remark in remarks:
        click.echo(f"fairlead: {printable(remark)}", err=True)


@main.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--layers",
    default="",
    metavar="LIST",
    help="OpenCL layers to load, as OPENCL_LAYERS; also command-buffer and trace.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run(ctx: click.Context, layers: str, command: tuple[str, ...]) -> None:
    """Run COMMAND with fairlead's libOpenCL.so.1 in place of its own OpenCL loader.

    It and its child processes get the drivers and repairs of fairlead: C programs, PyOpenCL and
    programs that bring a loader along. Set-user-ID programs do not. Nothing else changes, and
    nothing stays.

    The exit code is that of COMMAND.
    """
    from .run import run

    ctx.exit(run(command, layers))


@main.command()
@click.option("--own", is_flag=True, help="List those that come with fairlead, by their names.")
def layers(own: bool) -> None:
    """List the OpenCL layers that OPENCL_LAYERS and OPENCL_LAYER_PATH name, the innermost first.

    \b
    name | version of the interface | how it starts and ends | library
    """
    from .layers import list_layers, list_own

    keep_stdout_to_ourselves()
    if own:
        for line in list_own():
            click.echo(printable(line))
        return
    rows, warnings = list_layers()
    for warning in warnings:
        click.echo(f"warning: {printable(warning)}", err=True)
    for row in rows:
        click.echo(printable(str(row)))
    if not rows and not warnings:
        click.echo("the variables name no layer; --own lists those of fairlead", err=True)


def _apis(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """A comma list of APIs, in the order in which it is written."""
    from ..loader.trace.trace import APIS

    names = tuple(filter(None, (name.strip().lower() for name in value.split(","))))
    if unknown := [name for name in names if name not in APIS]:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(APIS)}")
    if not names:
        raise click.BadParameter(f"name at least one of {', '.join(APIS)}")
    return names


@main.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the trace to this file, as Chrome trace JSON. "
    "[default: fairlead-trace.json, without --html]",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    help="Write a page for browsers to this file. It implies --device.",
)
@click.option(
    "--apis",
    default="ur,pi,cl",
    show_default=True,
    callback=_apis,
    help="Trace these APIs: a comma list of ur, pi, cl, ze, cuda and hip.",
)
@click.option(
    "--print",
    "live",
    is_flag=True,
    help="Print calls to stderr as they happen; nothing is written to a file.",
)
@click.option("--times", is_flag=True, help="With --print, say how long each call took.")
@click.option(
    "--sycl", is_flag=True, help="Have a real DPC++ runtime print its calls to stdout, too."
)
@click.option(
    "--device",
    is_flag=True,
    help="Say what devices did: when each command was queued, submitted, started and ended.",
)
@click.option(
    "--only",
    default="",
    metavar="NAMES",
    help="Show calls of these functions only: a comma list of patterns such as clEnqueue*.",
)
@click.option("--errors", is_flag=True, help="Show only calls that failed.")
@click.option(
    "--dump",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write the sources and the build logs of OpenCL programs into this folder.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def trace(
    ctx: click.Context,
    output: Path | None,
    html: Path | None,
    apis: tuple[str, ...],
    live: bool,
    times: bool,
    sycl: bool,
    device: bool,
    only: str,
    errors: bool,
    dump: Path | None,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND and trace its OpenCL, Unified Runtime and PI calls.

    The calls of all its processes go to one file, for ui.perfetto.dev or chrome://tracing, or to a
    page for browsers. A table of the functions goes to stderr.

    Traced are the OpenCL calls of any program whose libOpenCL loads layers, and all calls that
    Python programs make through fairlead. With --print, calls that only the layer sees are printed
    when COMMAND has ended.

    The exit code is that of COMMAND.
    """
    from ..loader.trace.environment import Wanted
    from .trace import run

    if live and (device or html or dump):
        raise click.UsageError("--device, --html and --dump write files, and --print writes none")
    if not live and not html:
        output = output or Path("fairlead-trace.json")
    wanted = Wanted.of(only, errors)
    file = None if live else output
    ctx.exit(run(command, apis, file, times, sycl, device or bool(html), wanted, html, dump))


@main.command()
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
    ctx: click.Context, library: Path, area: str, device: str, as_json: bool, timeout: float
) -> None:
    """Test an adapter, a PI plugin, an OpenCL or Level Zero driver against its specification.

    LIBRARY is the library's file; its interface follows from its symbols. Cases run in child
    processes: one that crashes or hangs has failed, and the others continue. The output says
    first how to read it. A table counts passed, failed and unsupported cases for each area; what
    the library does not implement is unsupported. Each failure is a line: entry point, rule,
    expected, got.

    The exit code is 1 if a case failed, 2 if there is no such area or device.
    """
    from .conformance import run

    keep_stdout_to_ourselves()
    ctx.exit(run(library, area=area, device=device, as_json=as_json, timeout=timeout))


@main.command("build-adapter")
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
    `driver`. The library contains the module's name and
    the path of this Python environment, but no code of the module. So it need not be built again
    when the module changes. The command prints the library's path.
    """
    from ..plugins.sdk import build

    try:
        made = build.build_level_zero_driver if level_zero else build.build_adapter
        path = made(module, output)
    except ImportError as error:
        hint = f"; is the file {module}.py meant?" if Path(f"{module}.py").exists() else ""
        raise click.ClickException(f"{error}{hint}") from None
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    click.echo(str(path))
    variable = "ZE_ENABLE_ALT_DRIVERS" if level_zero else "UR_ADAPTERS_FORCE_LOAD"
    click.echo(f"use it: {variable}={_list_item(path)} PROGRAM", err=True)
    if not build.find_python_library():
        click.echo(
            "warning: this Python was built without a shared library: "
            "only programs that it runs can use the adapter",
            err=True,
        )


def _list_item(path: Path) -> str:
    """A path as a loader reads it in a list, and a shell in a command."""
    return shlex.quote(f'"{path}"' if set(str(path)) & set(":;,") else str(path))


@main.command()
@click.option(
    "--pi",
    is_flag=True,
    help="Print the path of the PI plugin, for DPC++ up to 2024.2. "
    "That loads it by the name libpi_opencl.so.",
)
@click.option("--cuda", is_flag=True, help="Print the path of the adapter for the CUDA driver.")
@click.option("--hip", is_flag=True, help="Print the path of the adapter for HIP.")
@click.option("--level-zero", is_flag=True, help="Print the path of the adapter on Level Zero.")
def adapter(**chosen: bool) -> None:
    """Print the path of fairlead's own Unified Runtime adapter, which drives any OpenCL device.

    \b
    UR_ADAPTERS_FORCE_LOAD=$(fairlead adapter) PROGRAM
    """
    from .. import plugins

    names = [name for name, wanted in chosen.items() if wanted]
    if len(names) > 1:
        raise click.UsageError("these are different libraries: give one of the options")
    paths = {
        "pi": plugins.reference_plugin,
        "cuda": plugins.cuda_adapter,
        "hip": plugins.hip_adapter,
        "level_zero": plugins.level_zero_adapter,
    }
    path = paths[names[0]]() if names else plugins.reference_adapter()
    if not os.path.exists(path):
        raise click.ClickException(
            f"{path} is not there: fairlead was installed without its native parts"
        )
    click.echo(path)


main.add_command(show)
main.add_command(replay)
main.add_command(compare)
main.add_command(record)
