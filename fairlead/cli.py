"""The command `fairlead`: `devices` lists what can be used, `doctor` explains what cannot.

An error of fairlead's own is printed as its message, with exit code 1. Colours are for terminals only.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click

from .loader.errors import FairleadError


class _Group(click.Group):
    """Prints our errors as click prints its own: the message, no traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FairleadError as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fairlead", prog_name="fairlead", message="%(prog)s %(version)s")
def main() -> None:
    """Find OpenCL drivers, and say why one is missing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a driver's or a file's name may hold what this locale has no character for
            stream.reconfigure(errors="backslashreplace")


@dataclass(frozen=True)
class DeviceRow:
    """A device as `fairlead devices --json` prints it: an array of these objects, in the order of `fairlead.devices()`.

    `platform` and `device` are indices: of the platform in `fairlead.platforms()` and of the device in that. `library` is the
    real path of the driver. Keys may be added in later versions; none is renamed or removed.
    """

    platform: int
    device: int
    type: str
    name: str
    platform_name: str
    platform_version: str
    driver_version: str
    icd_version: int
    library: str

    def __str__(self) -> str:
        """The row as a line: each text on one line, without runs of blanks."""
        parts = (
            f"[{self.platform}:{self.device}] {self.type}",
            self.name,
            f"{self.platform_name}, {self.platform_version}",
            f"driver {self.driver_version}",
            f"ICD {self.icd_version}",
            self.library,
        )
        return " | ".join(" ".join(part.split()) for part in parts)


def _rows(found: Any) -> Iterator[DeviceRow]:
    from .api import platforms

    indices = {platform: index for index, platform in enumerate(platforms())}
    for device in found:
        platform = device.platform
        yield DeviceRow(
            platform=indices[platform],
            device=platform.devices.index(device),
            type=device.type,
            name=device.name,
            platform_name=platform.name,
            platform_version=platform.version,
            driver_version=device.driver_version,
            icd_version=platform.icd_version,
            library=platform.driver.path,
        )


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print an array of objects.")
def devices(as_json: bool) -> None:
    """List the devices of all usable drivers, one a line.

    [platform:device] type | name | platform and its version | driver's version | ICD version | library
    """
    from .api import usable_devices

    found, failures = usable_devices()
    for failure in failures:
        click.echo(f"warning: {failure}", err=True)
    rows = list(_rows(found))
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        for row in rows:
            click.echo(str(row))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print one object: all the facts, the problems, and `ok`.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Seconds that the probe of a driver may take. [default: FAIRLEAD_PROBE_TIMEOUT, else 20]",
)
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, timeout: float | None) -> None:
    """Explain every driver that was found, every one that was refused, and what to do next.

    The exit code is 1 if anything is in error: no driver usable; a driver that was found and refused, unless its package just
    never shipped it; a variable or a manifest that leads nowhere; a cache or device that the drivers need and that is closed to
    this user; a PyOpenCL without its loader. Warnings leave it at 0.
    """
    from .doctor import examine
    from .report import render

    facts = examine(timeout)
    if as_json:
        click.echo(json.dumps(facts.as_dict(), indent=2))
    else:
        click.echo(render(facts, lambda text, colour: click.style(text, fg=colour or None, bold=True)))
    ctx.exit(0 if facts.ok else 1)
