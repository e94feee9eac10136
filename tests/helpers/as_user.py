"""What a user does with an installed fairlead, without a compiler.

Runs the README's example, replays a graph from a file, asks `fairlead doctor`, and builds an
adapter. The Python of the environment that has fairlead runs this file; nothing else of the tests
is needed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

TREE: Final = Path(__file__).resolve().parents[2]


def read_example() -> str:
    """The README's example."""
    found = re.search(r"```python\n(.*?)```", (TREE / "README.md").read_text("utf-8"), re.DOTALL)
    assert found, "README.md has no example"
    return found[1]


def run(*words: str, folder: str) -> str:
    """Return what a command of this Python prints. Ends the process if it fails."""
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{words} failed: {done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Do all of it, and print a line for each."""
    with tempfile.TemporaryDirectory() as folder:
        program = f"{read_example()}\ngraph.save('example.flg', contents='inputs')\n"
        said = run("-c", program, folder=folder)
        assert abs(float(said.split()[2]) - 1) < 1e-3, said
        print("example:", said.strip())
        print("replay:", run("-m", "fairlead", "replay", "example.flg", folder=folder).strip())
        # a libOpenCL.so.1 of the system, if there is one, does not look into a Python environment
        doctor = sys.executable, "-m", "fairlead", "doctor"
        verdict = run("-m", "fairlead", "run", "--", *doctor, folder=folder)
        print("doctor:", next(line for line in verdict.splitlines() if "usable" in line).strip())
        adapter = str(TREE / "examples/toy_adapter.py")
        built = run("-m", "fairlead", "build-adapter", adapter, "-o", folder, folder=folder)
        assert Path(folder, built.strip()).exists(), built
        print("adapter:", Path(built.strip()).name)


if __name__ == "__main__":
    main()
