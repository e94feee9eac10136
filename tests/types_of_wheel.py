"""Type-checks fairlead as it is installed, and with it what uses it: the tests, the examples and the benchmarks.

In the tree pyright follows the folders as they lie; the front door, which imports them as `fairlead.…`, exists only once installed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Folders of tests whose modules other tests import by name (conftest.py has them on the path).
_MODULES = ("clients", "graph", "loader", "native", "packaging", "plugins", "plugins/opencl", "plugins/fuzz")


def main() -> int:
    target = ROOT / "build" / "types"
    shutil.rmtree(target, ignore_errors=True)
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(ROOT)]
    subprocess.run([sys.executable, *install], check=True)
    settings = {
        "include": ["fairlead", *(f"../../{folder}" for folder in ("tests", "examples", "bench"))],
        "extraPaths": [".", *(f"../../tests/{folder}" for folder in _MODULES), "../../tests", "../../examples", "../.."],
        "pythonVersion": "3.10",
        "typeCheckingMode": "standard",
        "venvPath": "../..",
        "venv": ".venv",
    }
    (target / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    return subprocess.run([Path(sys.executable).parent / "pyright", "-p", str(target)]).returncode


if __name__ == "__main__":
    sys.exit(main())
