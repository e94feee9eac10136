"""Single calls of entry points from a C program, through the reference adapter and Intel's.

Both run on Intel's OpenCL driver, each in a process of its own, which calls the adapter's tables
without a loader. The processes take turns, and the median of a call's batches counts.

    UR_PLUGINS=… OCL_ICD_FILENAMES=… python -m bench.calls [ROUNDS]

UR_PLUGINS has Intel's adapter, as the tests have it. OCL_ICD_FILENAMES names Intel's driver.
"""

from __future__ import annotations

import os
import re
import runpy
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fairlead.icd.abi import OPENCL
from fairlead.loader.base.search import find_python_libraries
from fairlead.loader.ur.abi import UR
from fairlead.plugins import reference_adapter

#: The adapters, with the release that their tables have the order of.
_ADAPTERS: Final = {
    "Intel's": (str(Path(os.environ["UR_PLUGINS"], "ur-then/libur_adapter_opencl.so.0")), "2025.3"),
    "ours": (reference_adapter(), "2026.0"),
}
_ROOT: Final = Path(__file__).parents[1]
_SOURCE: Final = Path(__file__).with_name("calls.c")
_TURNS: Final = 5
#: What may cost twice as much as Intel's. Everything else may cost 1.5 times as much.
_HEAVY: Final = ("urUSMDeviceAlloc", "urContextCreate")


def _abi(source: str) -> Iterator[str]:
    """Return the text of calls_abi.h: what the source uses."""
    building = runpy.run_path(str(_ROOT / "loader/base/native/building.py"))
    yield "#include <stddef.h>\n#include <stdint.h>"
    for api in (UR, OPENCL):
        yield from building["emit_declarations"](api)
        for function in api.functions.values():
            if re.search(rf"\b(fn_)?{function.name}\b", source):
                yield f"typedef {function.format_c_declaration(f'fn_{function.name}')};"
                if api is OPENCL:
                    yield f"#define SLOT_{function.name} {function.slot}"
    for name in sorted(set(re.findall(r"\bUR_[A-Z0-9_]+\b", source)) & set(UR.constants)):
        yield f"#define {name} {UR[name]}"
    yield "static const struct place {\n    const char *name, *layout, *table;\n    unsigned index;"
    yield "} places[] = {"
    for _, layout in _ADAPTERS.values():
        for table, names in UR.layouts[layout].items():
            for index, name in enumerate(names):
                yield f'    {{"{name}", "{layout}", "{table}", {index}}},'
    yield "    {0}};"


def build(folder: Path) -> Path:
    """Compile calls.c in a folder, and return the program."""
    text = _SOURCE.read_text(encoding="utf-8")
    (folder / "calls_abi.h").write_text("\n".join([*_abi(text), ""]), encoding="utf-8")
    program = folder / "calls"
    options = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{folder}"]
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run(
        [*compiler, *options, str(_SOURCE), "-o", str(program), "-pthread", "-ldl"], check=True
    )
    return program


def run(program: Path, adapter: str, layout: str, rounds: int) -> dict[str, float]:
    """Return nanoseconds by the name of the call, from one process."""
    environ = {**os.environ, "FAIRLEAD_UR_LAYOUT": layout}
    libraries = [os.environ.get("LD_LIBRARY_PATH", ""), *find_python_libraries()]
    libraries.append(str(Path(os.environ["UR_PLUGINS"], "umf")))  # Intel's adapter needs it
    environ["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))
    done = subprocess.run(
        [program, adapter, layout, str(rounds)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=environ,
    )
    rows = (line.split("\t") for line in done.stdout.splitlines())
    return {name: float(value) for name, value in rows}


def compare(rounds: int) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    with TemporaryDirectory() as folder:
        program = build(Path(folder))
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in _ADAPTERS}
        for _ in range(_TURNS):
            for name, adapter in _ADAPTERS.items():
                runs[name].append(run(program, *adapter, rounds))
    yield "| call | Intel's, µs | ours, µs | ours ÷ Intel's | target |"
    yield "|---|---|---|---|---|"
    for call in runs["ours"][0]:
        theirs, ours = (statistics.median(one[call] for one in runs[name]) for name in _ADAPTERS)
        target = 2 if call.startswith(_HEAVY) else 1.5
        ratio = f"{ours / theirs:.2f}"
        shown = ratio if ours <= target * theirs else f"**{ratio}**"
        yield f"| {call} | {theirs / 1e3:.2f} | {ours / 1e3:.2f} | {shown} | ≤ {target} |"


if __name__ == "__main__":
    for line in compare(int(sys.argv[1]) if len(sys.argv) > 1 else 51):
        print(line)
