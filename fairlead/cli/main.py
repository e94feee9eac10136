"""The command `fairlead`, with the options of `devices`, `info`, `doctor` and `env`.

The options of the other subcommands are in graph_commands.py, program_commands.py and
adapter_commands.py.

An error of fairlead is printed as its message, with exit code 1. Only terminals get colours.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import click

from .. import name_extra
from ..loader.base.errors import FairleadError, NotFoundError
from ..loader.base.forked import fork_children
from ..loader.base.processes import end_in_order
from ..loader.base.query import escape_text
from .adapter_commands import adapter, build_adapter, conformance
from .graph_commands import compare, record, replay, show
from .output import keep_stdout_to_ourselves, print_any_text, print_warnings
from .program_commands import layers, run, trace
from .registered_commands import list_commands, load_command


class _Group(click.Group):
    """Has commands of other packages, too, and prints our errors as click prints its own.

    Our own commands are not looked up in the metadata of packages: `fairlead run` would wait.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Be the program of this process, whose children are forks."""
        fork_children()
        end_in_order()
        return super().__call__(*args, **kwargs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command of ours, else the one that a package registers."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        registered = next((one for one in list_commands() if one.name == cmd_name), None)
        return load_command(registered) if registered is not None else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List each command with its whole first sentence. Those of others are not imported."""
        rows = [
            (name, self.commands[name].get_short_help_str(sys.maxsize))
            for name in self.list_commands(ctx)
        ]
        rows += [
            (one.name, f"Of the package {one.package}.")
            for one in list_commands()
            if one.name not in self.commands
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FairleadError as error:
            click.ClickException(escape_text(str(error))).show()
            ctx.exit(getattr(error, "exit_code", 1))
        except ModuleNotFoundError as missing:
            told = name_extra(f"fairlead {ctx.invoked_subcommand}", missing)
            if told is missing:
                raise
            click.ClickException(str(told)).show()
            ctx.exit(1)
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
    print_any_text()


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
    from .columns import find_terminal_width
    from .devices import as_table, find_devices

    rows = [row for row, _ in _list_found(find_devices, interfaces, as_json)]
    if as_json:
        click.echo(json.dumps([row.get_fields() for row in rows], indent=2))
    else:
        click.echo("\n".join(as_table(rows, find_terminal_width())))


def _list_found(
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
        print_warnings(warnings)


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
    from .columns import find_terminal_width
    from .info import describe_devices, render

    found = list(_list_found(partial(describe_devices, wanted=device), interfaces, as_json))
    if as_json:
        click.echo(json.dumps([one.as_dict() for one in found], indent=2))
    else:
        click.echo("\n\n".join(render(one, find_terminal_width()) for one in found))


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
    from .env import make_shell_commands

    keep_stdout_to_ourselves()
    lines, remarks = make_shell_commands(loader=loader)
    for line in lines:
        click.echo(line)
    for remark in remarks:
        click.echo(f"fairlead: {escape_text(remark)}", err=True)


for command in (
    *(run, layers, trace),
    *(conformance, build_adapter, adapter),
    *(show, replay, compare, record),
):
    main.add_command(command)
