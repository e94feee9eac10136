"""`python -m fairlead` is the command `fairlead`."""

from .cli import main

main(prog_name="fairlead")
