"""Commands of other packages: what they register in the group `fairlead.commands`."""

from __future__ import annotations

import click

from ..loader.base.registered import Registered, list_registered


def list_commands() -> tuple[Registered, ...]:
    """Return the registered commands, in the order of their names."""
    return list_registered("fairlead.commands")


def load_command(registered: Registered) -> click.Command:
    """Import a command.

    Raises:
        FairleadError: it cannot be imported, or is something else.
    """
    found = registered.load()
    if not isinstance(found, click.Command):
        remedy = "register a function with the decorator click.command"
        raise registered.refuse("is not a click.Command", remedy)
    return found
