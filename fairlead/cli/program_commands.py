"""The options of `fairlead run`, `layers` and `trace`."""

from __future__ import annotations

from pathlib import Path

import click

from ..loader.base.query import escape_text
from .output import keep_stdout_to_ourselves


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--layers",
    default="",
    metavar="LIST",
    help="OpenCL layers to load, as OPENCL_LAYERS; also names that `fairlead layers --own` lists.",
)
@click.option(
    "--share-cuda",
    is_flag=True,
    help="Share buffers on NVIDIA's platform with CUDA when COMMAND imports fairlead, so that its "
    "captured graphs can run as CUDA Graphs (FAIRLEAD_CUDA=1).",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(layers: str, share_cuda: bool, command: tuple[str, ...]) -> None:
    """Run COMMAND with fairlead's libOpenCL.so.1 in place of its own OpenCL loader.

    It and its child processes get the drivers and repairs of fairlead: C programs, PyOpenCL and
    programs that bring a loader along. Set-user-ID programs do not. Nothing else changes, and
    nothing stays.

    COMMAND takes the place of this process: signals and exit codes are its own.
    """
    from .run import run

    run(command, layers, share_cuda=share_cuda)


@click.command()
@click.option(
    "--own", is_flag=True, help="List those of fairlead and of other packages, by their names."
)
def layers(own: bool) -> None:
    """List the OpenCL layers that OPENCL_LAYERS and OPENCL_LAYER_PATH name, the innermost first.

    \b
    name | version of the interface | how it starts and ends | library
    """
    from .layers import list_layers, list_named_layers

    keep_stdout_to_ourselves()
    rows, warnings = list_named_layers() if own else list_layers()
    for warning in warnings:
        click.echo(f"warning: {escape_text(warning)}", err=True)
    for row in rows:
        click.echo(escape_text(str(row)))
    if not rows and not warnings:
        click.echo("the variables name no layer; --own lists those of fairlead", err=True)


def _parse_apis(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
    """Return a comma list of APIs, in the order in which it is written."""
    from ..loader.trace.trace import APIS

    names = tuple(filter(None, (name.strip().lower() for name in value.split(","))))
    if unknown := [name for name in names if name not in APIS]:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(APIS)}")
    if not names:
        raise click.BadParameter(f"name at least one of {', '.join(APIS)}")
    return names


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the trace to this file, as Chrome trace JSON. "
    "[default: fairlead-trace.json, without --html]",
)
@click.option(
    "--perfetto",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write what ui.perfetto.dev opens to this file, with arrows from each call to what it "
    "enqueued. It is -o with --device.",
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
    callback=_parse_apis,
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
    perfetto: Path | None,
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

    if perfetto and output:
        raise click.UsageError("--perfetto and -o name the same file: give one of them")
    output, device = perfetto or output, device or bool(perfetto or html)
    if live and (device or dump):
        raise click.UsageError(
            "--device, --perfetto, --html and --dump write files, and --print writes none"
        )
    if not live and not html:
        output = output or Path("fairlead-trace.json")
    wanted = Wanted.from_patterns(only, errors)
    file = None if live else output
    ctx.exit(run(command, apis, file, times, sycl, device, wanted, html, dump))
