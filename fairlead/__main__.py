"""`python -m fairlead` is the command `fairlead`."""

from .cli.main import main

main(prog_name="fairlead")
