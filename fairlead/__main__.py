"""The command `fairlead`, and `python -m fairlead`."""

from __future__ import annotations

import sys
from contextlib import suppress


def main() -> None:
    """Run the command line. `fairlead run` without options imports no parser: programs wait."""
    command = sys.argv[2:]
    if sys.argv[1:2] == ["run"] and command and (command[0] == "--" or command[0][:1] != "-"):
        from .cli.run import run
        from .loader.base.errors import FairleadError

        with suppress(FairleadError):  # it happens again below, and is printed
            run(command[1:] if command[0] == "--" else command)
    from .cli.main import main

    main(prog_name="fairlead")


if __name__ == "__main__":
    main()
