"""The command `fairlead`, and `python -m fairlead`."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress


def main() -> None:
    """Run the command line. What programs and people wait for imports no parser.

    That is `fairlead run` and `fairlead devices`, without options. What fails there happens again
    below, and is printed.
    """
    command = sys.argv[2:]
    if sys.argv[1:2] == ["run"] and command and (command[0] == "--" or command[0][:1] != "-"):
        from .cli.run import run
        from .loader.base.errors import FairleadError

        with suppress(FairleadError):
            run(command[1:] if command[0] == "--" else command)
    if sys.argv[1:] == ["devices"]:
        gc.disable()  # so short a process has little garbage
        from .cli.devices import print_devices
        from .loader.base.errors import FairleadError
        from .loader.base.forked import end_like_c

        try:
            print_devices()
            end_like_c(0)
        except (FairleadError, OSError):  # a reader that has gone, no more open files
            pass
        except KeyboardInterrupt:
            sys.exit("Aborted!")
        gc.enable()
    from .cli.main import main

    main(prog_name="fairlead")


if __name__ == "__main__":
    main()
