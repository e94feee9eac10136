"""`fairlead run`, `fairlead env --loader` and `fairlead.preload`: our loader under other
programs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.support import FakeDriver, RunPython, list_imports

from fairlead.icd import libopencl
from fairlead.loader.base.errors import FairleadError
from fairlead.loader.base.search import Candidate

COMMAND = "from fairlead.cli.main import main; main()"
#: A program of the system, and its loader.
pytestmark = pytest.mark.slow

CLINFO = shutil.which("clinfo")
needs_clinfo = pytest.mark.skipif(CLINFO is None, reason="clinfo is not installed")
#: clinfo tries a kernel, which a PoCL wheel builds only after its repair, and times a clock.
VARIES = re.compile(r"Preferred work group size multiple \(kernel\)|Max clock frequency")
PYOPENCL = """
import numpy, pyopencl, sys, warnings

warnings.simplefilter("ignore")
(device,) = [p for p in pyopencl.get_platforms() if "Portable" in p.name][0].get_devices()
context = pyopencl.Context([device])
queue = pyopencl.CommandQueue(context)
code = "kernel void twice(global int *a) { a[get_global_id(0)] *= 2; }"
program = pyopencl.Program(context, code).build()
buffer = pyopencl.Buffer(
    context, pyopencl.mem_flags.COPY_HOST_PTR, hostbuf=numpy.arange(5, dtype="i")
)
program.twice(queue, (5,), None, buffer)
result = numpy.empty(5, "i")
pyopencl.enqueue_copy(queue, result, buffer)
print(result.tolist(), sys.argv[1:])
"""
OPEN = (
    "print('/fairlead/' in open('/proc/self/maps').read() and 'libOpenCL.so.1' in "
    "open('/proc/self/maps').read())"
)


def report(run_python: RunPython, *before: str, **env: str) -> list[str]:
    """clinfo's report without its section about the loader."""
    assert CLINFO is not None
    code = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"
    output = run_python(code, *(before or (CLINFO,)), env=env)
    return [line for line in output.out.splitlines() if "ICD loader" not in line]


@needs_clinfo
@pytest.mark.driver("pocl_wheel")
def test_clinfo_says_the_same_as_under_its_own_loader(
    run_python: RunPython, pocl_wheel: Candidate
) -> None:
    library = pocl_wheel.library
    theirs = report(run_python, OCL_ICD_VENDORS=library)
    folder = os.path.dirname(libopencl.find_library())
    ours = report(run_python, OCL_ICD_VENDORS=library, LD_LIBRARY_PATH=folder)
    assert len(theirs) == len(ours) > 150
    differ = [(a, b) for a, b in zip(theirs, ours, strict=True) if a != b]
    assert not [pair for pair in differ if not VARIES.search(pair[0])]


@needs_clinfo
def test_fairlead_run(run_python: RunPython, fake_driver: FakeDriver) -> None:
    assert CLINFO is not None
    env = {"OCL_ICD_VENDORS": str(fake_driver())}
    output = run_python(COMMAND, "run", "--", CLINFO, env=env)
    assert "ICD loader Name" in output.out
    assert re.search(r"ICD loader Name +fairlead\n", output.out)
    assert re.search(r"Platform Name +Fake 0\n", output.out)
    plain = run_python(COMMAND, "run", CLINFO, "-l", env=env)
    assert plain.out.startswith("Platform #0: Fake 0")


def test_its_exit_code_and_what_it_changes(run_python: RunPython) -> None:
    code = (
        "import os, sys; print(os.environ['OPENCL_LAYERS'], 'LD_PRELOAD' in "
        "os.environ); sys.exit(3)"
    )
    output = run_python(
        COMMAND, "run", "--layers", "x.so", "--", sys.executable, "-c", code, check=False
    )
    assert (output.code, output.out) == (3, "x.so True\n")
    assert "x.so" not in os.environ.get("OPENCL_LAYERS", "")
    missing = run_python(COMMAND, "run", "--", "/nowhere/program", check=False)
    assert missing.code == 127 and "/nowhere/program cannot be run" in missing.err


def test_the_program_takes_the_place_of_this_process() -> None:
    """It has the process number that the caller knows, and signals as programs have them."""
    program = ("grep", "Pid\\|SigIgn", "/proc/self/status")
    command = [sys.executable, "-m", "fairlead", "run", "--", *program]
    run = subprocess.Popen(command, stdout=subprocess.PIPE)
    found = dict(line.split(b":") for line in run.communicate()[0].splitlines())
    assert int(found[b"Pid"]) == run.pid
    assert not int(found[b"SigIgn"], 16) & 1 << (signal.SIGPIPE - 1)


def test_what_it_imports() -> None:
    """Each program waits for it: neither a parser of options, nor what opens drivers."""
    imported = list_imports("run", "true", env={"ZE_ENABLE_ALT_DRIVERS": "/nowhere.so"})
    assert "fairlead.cli.run" in imported
    code = "import ctypes, sys; print(*sys.modules)"  # which imports threading in Python 3.14
    theirs = subprocess.check_output([sys.executable, "-S", "-c", code], text=True).split()
    assert not imported.difference(theirs) & {
        "click",
        "subprocess",
        "dataclasses",
        "json",
        "pathlib",
        "re",
        "shlex",
        "threading",
        "typing",
        "fairlead.loader.base._native",
        "fairlead.loader.base.children",
        "fairlead.loader.base.probe_verdicts",
        "fairlead.plugins",
    }
    own = {name for name in imported if name.startswith("fairlead")}
    assert len(own) <= 22, sorted(own)


@pytest.mark.parametrize(("option", "found"), [("--share-cuda", "1"), ("--", "None")])
def test_it_can_share_buffers_with_cuda(run_python: RunPython, option: str, found: str) -> None:
    code = "import os; print(os.environ.get('FAIRLEAD_CUDA'))"
    env = {"FAIRLEAD_CUDA": None}
    output = run_python(COMMAND, "run", option, sys.executable, "-c", code, env=env)
    assert output.out == f"{found}\n"


@pytest.mark.parametrize("layers", ["comand-buffer", "command-buffer,trace", "trace:--"])
def test_a_layer_that_nobody_knows_is_refused_before_the_program_runs(
    run_python: RunPython, layers: str
) -> None:
    output = run_python(COMMAND, "run", "--layers", layers, "--", "echo", "ran", check=False)
    assert (output.code, output.out) == (1, "")
    assert "there is no OpenCL layer called" in output.err
    assert "remedy: name command-buffer or trace, or a library" in output.err


def test_the_variables() -> None:
    library, folder = libopencl.find_library(), os.path.dirname(libopencl.find_library())
    python = {"FAIRLEAD_LIBOPENCL_PYTHON": sys.executable}
    assert libopencl.make_environment({}) == {
        **python,
        "LD_LIBRARY_PATH": folder,
        "LD_PRELOAD": library,
    }
    before = {"LD_LIBRARY_PATH": "/a", "LD_PRELOAD": "/b.so"}
    assert libopencl.make_environment(before) == {
        **python,
        "LD_LIBRARY_PATH": f"{folder}:/a",
        "LD_PRELOAD": f"{library}:/b.so",
    }


@pytest.mark.parametrize(
    ("path", "reason"), [("/nowhere/x.so", "is missing"), ("{}/a folder/x.so", "cannot name")]
)
def test_a_path_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str, reason: str
) -> None:
    library = Path(path.format(tmp_path))
    if "{}" in path:
        library.parent.mkdir()
        library.touch()
    monkeypatch.setattr(libopencl, "find_library", lambda: str(library))
    with pytest.raises(FairleadError, match=reason):
        libopencl.make_environment({})


@needs_clinfo
def test_fairlead_env_loader(run_python: RunPython, fake_driver: FakeDriver) -> None:
    env = {"OCL_ICD_VENDORS": str(fake_driver())}
    output = run_python(COMMAND, "env", "--loader", env=env)
    script = f"{output.out}\nexec clinfo"
    code = "import os, sys; os.execvp('sh', ['sh', '-c', sys.argv[1]])"
    assert re.search(r"ICD loader Name +fairlead\n", run_python(code, script, env=env).out)
    assert output.err == ""


# PyOpenCL, whose wheels have a loader of their own


@pytest.mark.driver("pocl_wheel")
def test_pyopencl_under_fairlead_run(run_python: RunPython, tmp_path: Path) -> None:
    program = tmp_path / "app.py"
    program.write_text(PYOPENCL, encoding="utf-8")
    output = run_python(COMMAND, "run", "--", sys.executable, str(program), "one")
    assert output.out == "[0, 2, 4, 6, 8] ['one']\n", "also on a CPU that needs the repair"


@pytest.mark.driver("pocl_wheel")
def test_pyopencl_under_preload(run_python: RunPython, tmp_path: Path) -> None:
    output = run_python(f"import fairlead.preload\n{PYOPENCL}", "two")
    assert output.out == "[0, 2, 4, 6, 8] ['two']\n"
    program = tmp_path / "app.py"
    program.write_text(PYOPENCL, encoding="utf-8")
    start = (
        "import os, sys; os.execv(sys.executable, [sys.executable, '-m', "
        "'fairlead.preload', *sys.argv[1:]])"
    )
    assert run_python(start, str(program), "-v").out == "[0, 2, 4, 6, 8] ['-v']\n"
    assert "usage: python -m fairlead.preload" in run_python(start, check=False).err


@pytest.mark.driver("pocl_wheel")
def test_capture_under_preload(run_python: RunPython) -> None:
    """Two loaders in one process: ours for PyOpenCL, and fairlead's tables."""
    code = f"""import fairlead.preload, fairlead
{PYOPENCL}
with fairlead.capture(queue) as graph:
    program.twice(queue, (5,), None, buffer)
loop = graph.finalize()
for _ in range(3): loop.replay(queue)
pyopencl.enqueue_copy(queue, result, buffer)
print(result.tolist())
"""
    assert run_python(code).out.splitlines()[-1] == "[0, 16, 32, 48, 64]"


@pytest.mark.driver("pocl_wheel")
def test_preload_comes_first(run_python: RunPython) -> None:
    output = run_python("import pyopencl, fairlead.preload", check=False)
    assert "pyopencl._cl is loaded already" in output.err
    assert "import fairlead.preload before it" in output.err


@pytest.mark.driver("pocl_wheel")
def test_fairlead_trace_of_fairlead_run(run_python: RunPython, tmp_path: Path) -> None:
    program, trace = tmp_path / "app.py", tmp_path / "trace.json"
    program.write_text(PYOPENCL, encoding="utf-8")
    command = ["fairlead", "run", "--", sys.executable, str(program)]
    code = (
        "import sys; sys.argv[1:] = "
        f"{['trace', '-o', str(trace), '--', sys.executable, '-m', *command]!r}"
    )
    output = run_python(f"{code}\n{COMMAND}")
    assert output.out == "[0, 2, 4, 6, 8] []\n"
    assert "clEnqueueNDRangeKernel" in trace.read_text(encoding="utf-8")


def test_a_loader_that_cannot_be_opened(run_python: RunPython, tmp_path: Path) -> None:
    text = tmp_path / "libOpenCL.so.1"
    text.write_text("no library", encoding="utf-8")
    code = "import sys; from pathlib import Path; from fairlead.icd import libopencl\n"
    code += "libopencl.find_library = lambda: sys.argv[1]\nimport fairlead.preload"
    output = run_python(code, str(text), check=False)
    assert "dlopen: the OpenCL loader cannot be opened: " in output.err
    assert "raise that limit (ulimit -n)" in output.err


def test_too_few_files_for_a_command(run_python: RunPython) -> None:
    code = """import resource
from fairlead.cli.main import main
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
main()"""
    output = run_python(code, "devices", check=False)
    assert output.code == 1 and "Traceback" not in output.err
    assert output.err.endswith("  remedy: raise the limit on open files: ulimit -n 1024\n")
