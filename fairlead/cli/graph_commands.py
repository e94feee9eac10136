"""The options of `fairlead show`, `replay`, `compare` and `record`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..loader.base.query import escape_text

_FILE = click.argument("file", type=click.Path(path_type=Path))
_SET = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=NUMBER",
    help="The value of a Parameter; repeatable.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one object.")


@click.command()
@click.option("--dot", is_flag=True, help="Print the order of the commands for Graphviz.")
@click.option("--svg", is_flag=True, help="Print it as a picture.")
@click.option("--source", default="", metavar="KERNEL", help="Print the source of a kernel.")
@click.option("--fused", is_flag=True, help="Show what a device runs as one kernel.")
@_FILE
def show(file: Path, dot: bool, svg: bool, source: str, fused: bool) -> None:
    """Say what is in a graph FILE, which `graph.save` has written.

    No driver is needed, except for --fused.
    """
    from ..graph_files.archive import GraphArchive
    from .graph_files import find_fused, format_contents, read_source, to_dot, to_svg

    with GraphArchive(file) as archive:
        runs, reasons = find_fused(file) if fused else ([], [])
        if source:
            click.echo(read_source(archive, source))
        elif dot:
            click.echo(to_dot(archive.document, runs))
        elif svg:
            click.echo(to_svg(archive.document, runs))
        else:
            for line in (*format_contents(archive, runs), *reasons):
                click.echo(escape_text(line))


@click.command()
@click.option(
    "--device",
    default="",
    metavar="SELECTOR",
    help="A number, platform:device, a type such as gpu, or a part of a name. "
    "[default: one like that on which FILE was saved]",
)
@click.option(
    "--times",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="How often it runs.",
)
@_SET
@click.option(
    "--save-outputs",
    type=click.Path(path_type=Path),
    metavar="NPZ",
    help="Write the outputs to an archive of NumPy's.",
)
@_JSON
@_FILE
def replay(
    file: Path,
    device: str,
    times: int,
    settings: tuple[str, ...],
    save_outputs: Path | None,
    as_json: bool,
) -> None:
    """Run a graph FILE, and say what its outputs are and how long it took."""
    from .graph_files import format_results, parse_settings, run_file, write_outputs
    from .output import keep_stdout_to_ourselves

    values = parse_settings(settings)
    keep_stdout_to_ourselves()
    facts, outputs = run_file(file, device, times, values)
    if save_outputs is not None:
        write_outputs(save_outputs, outputs)
    if as_json:
        shapes = {name: [str(one.dtype), list(one.shape)] for name, one in outputs.items()}
        click.echo(json.dumps({**facts, "times": times, "outputs": shapes}, indent=2))
    else:
        for line in format_results(facts, times, outputs):
            click.echo(line)


@click.command()
@click.option(
    "--times",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="N",
    help="How many runs are timed.",
)
@_SET
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    default=0.0,
    metavar="T",
    help="How much numbers may differ, relatively and absolutely. [default: bit for bit]",
)
@click.option(
    "--reference",
    type=click.Path(path_type=Path),
    metavar="NPZ",
    help="Outputs of `replay --save-outputs`. [default: those of the first run]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds that a device and engine may take.",
)
@_JSON
@_FILE
@click.pass_context
def compare(
    ctx: click.Context,
    file: Path,
    times: int,
    settings: tuple[str, ...],
    tolerance: float,
    reference: Path | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Run a graph FILE on every device by every engine, and compare the outputs of the first run.

    Each run is a process of its own. N more runs are timed. The exit code is 1 if outputs differ, a
    run failed, or none was possible.
    """
    from . import compare as comparison
    from .graph_files import parse_settings

    rows = comparison.compare(
        file,
        times=times,
        values=parse_settings(settings),
        tolerance=tolerance,
        reference=reference,
        timeout=timeout,
    )
    if as_json:
        click.echo(json.dumps(comparison.as_json(rows), indent=2))
    else:
        for line in comparison.format_rows(rows):
            click.echo(line)
    ctx.exit(0 if comparison.is_good(rows) else 1)


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The graph file to write.",
)
@click.option(
    "--from",
    "first",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="The number of the first command, from 0 on. [default: 0]",
)
@click.option(
    "--to",
    "last",
    type=click.IntRange(0),
    metavar="M",
    help="The number of the last command. [default: until the program ends]",
)
@click.option(
    "--kernel", default="", metavar="NAME", help="Count and record only launches of this kernel."
)
@click.option(
    "--contents",
    type=click.Choice(("none", "inputs", "all")),
    default="inputs",
    show_default=True,
    help="Which contents of memory the file has.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def record(
    ctx: click.Context,
    output: Path,
    first: int,
    last: int | None,
    kernel: str,
    contents: str,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND, and write down what it enqueues as a graph file.

    It runs as under `fairlead run`. Each of its processes that enqueues something has a file. If it
    crashes, the file has what was enqueued until then.

    The exit code is that of COMMAND; 1 if it is 0 and the file does not hold everything.
    """
    from .record import run

    ctx.exit(run(command, output, first, last, kernel, contents))
