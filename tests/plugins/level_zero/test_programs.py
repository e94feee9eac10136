"""A program in C on the driver, and calls that are wrong in every argument."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import pytest
from helpers.drivers import Driver
from helpers.support import Output, RunPython, run_program
from helpers.ze_bench import ZeBench
from helpers.ze_calls import ZeCalls

from fairlead.loader.base.search import Candidate
from fairlead.loader.ze import libze_loader
from fairlead.loader.ze.abi import ZE
from fairlead.plugins import level_zero_driver
from fairlead.plugins.level_zero.core import driver

HERE = Path(__file__).parent


def _run(name: str, library: str, folder: Path, env: dict[str, str]) -> Output:
    """Compile a program of this folder, and run it with a library."""
    program = folder / name
    flags = ["-Wall", "-Wextra", "-Werror", "-o", str(program), "-ldl", "-pthread"]
    subprocess.run([os.environ.get("CC", "cc"), str(HERE / f"{name}.c"), *flags], check=True)
    return run_program(program, library, env={**os.environ, **env})


def test_a_program_in_c_runs_a_mutable_list(
    tmp_path: Path, each_driver: Driver, run_python: RunPython
) -> None:
    each_driver.skip_unless_it_shares(run_python)
    env = {"OCL_ICD_FILENAMES": each_driver.library, "FAIRLEAD_EXCLUDE": ""}
    done = _run("hello", level_zero_driver(), tmp_path, env)
    assert (done.code, done.out) == (0, "42 42\n"), done.err


@pytest.mark.parametrize("by_loader", [False, True], ids=["driver", "loader"])
def test_threads_make_the_first_call_together_and_a_child_is_forked(
    by_loader: bool, tmp_path: Path, pocl_wheel: Candidate
) -> None:
    """Python begins once, all threads see the same driver, and the child sees it, too."""
    library = libze_loader.find_library() if by_loader else level_zero_driver()
    env = {"OCL_ICD_VENDORS": pocl_wheel.library, "ZE_ENABLE_ALT_DRIVERS": level_zero_driver()}
    done = _run("first", library, tmp_path, env)
    assert (done.code, done.out) == (0, "1 driver, child 0\n"), done.err


FIRST = """
import ctypes, sys, threading
kinds = [ctypes.CDLL(sys.argv[1]), ctypes.PyDLL(sys.argv[1])]
codes, together = [], threading.Barrier(4)
def begin(number):
    together.wait()
    codes.append(kinds[number % 2].zeInit(0))
threads = [threading.Thread(target=begin, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(codes)
"""


def test_threads_that_keep_the_gil_make_the_first_call_too(
    run_python: RunPython, pocl_wheel: Candidate
) -> None:
    """The driver needs the GIL to start, so nobody waits in the loader with it."""
    env = {"OCL_ICD_VENDORS": pocl_wheel.library, "ZE_ENABLE_ALT_DRIVERS": level_zero_driver()}
    done = run_python(FIRST, libze_loader.find_library(), env=env, fresh=True)
    assert done.out == "[0, 0, 0, 0]\n"


def test_zeros_for_all_arguments_are_refused(ze: ZeCalls) -> None:
    """Every function with a handle or a pointer that is needed says so."""
    for name in sorted(driver.declared):
        function = ZE.functions[name]
        first = next(iter(function.parameters))
        zeros = [p for p in function.parameters if ZE.resolve(p.type) == "struct" and not p.stars]
        if zeros or name == "zeInit" or ZE.resolve(function.returns) == "handle":
            continue
        code = ze.code(name, *(0 if not p.stars else None for p in function.parameters))
        is_handle = ZE.resolve(first.type) == "handle" and not first.stars
        wanted = {"INVALID_NULL_HANDLE"} if is_handle else {"INVALID_NULL_POINTER", "INVALID_SIZE"}
        assert code in wanted, (name, code)


def test_handles_that_are_none_are_refused(bench: ZeBench) -> None:
    """A released handle, a handle of another type, and an address that is not a handle."""
    released = bench.list()
    bench.ze.ok("zeCommandListDestroy", released)
    for wrong in (released, bench.queue, 0x1234, (1 << 64) - 1):
        assert bench.ze.code("zeCommandListClose", wrong) == "INVALID_ARGUMENT"
        assert bench.ze.code("zeEventHostSignal", wrong) == "INVALID_SYNCHRONIZATION_OBJECT"
        assert bench.ze.code("zeKernelSetGroupSize", wrong, 1, 1, 1) == "INVALID_KERNEL_HANDLE"


def test_the_last_error_is_told(bench: ZeBench) -> None:
    made, text = bench.list(mutable=True), ctypes.c_char_p()
    ask = "zeDriverGetLastErrorDescription", bench.driver, ctypes.byref(text)
    routine = "zeCommandListAppendMemoryFill"
    assert bench.ze.code(routine, made, 0x10, b"x", 0, 4, None, 0, None) == "INVALID_SIZE"
    bench.ze.ok(*ask)
    assert b"a pattern has at least one byte" in (text.value or b"")


LEFT_RUNNING = """
import ctypes
from ctypes import byref, c_int
from helpers.ze_bench import ZeBench
from helpers.ze_calls import ZeCalls
from fairlead.plugins import level_zero_driver
ze = ZeCalls(level_zero_driver())
ze.ok("zeInit", 0)
bench = ZeBench(ze, ze.listed("zeDriverGet")[0])
out, (gate,) = bench.ints(count=1 << 16), bench.events(1)
add, made = bench.kernel("add", out.pointer, c_int(1), size=64), bench.list()
for _ in range(50):
    bench.launch(made, add, 1 << 10)
ze.ok("zeCommandListClose", made)
other, immediate = bench.list(), bench.immediate()
bench.launch(other, add, 1, 0, gate)
ze.ok("zeCommandListClose", other)
bench.run(made, made, other, wait=False)
bench.launch(immediate, add, 1 << 10)
print("left")
"""


def test_a_process_may_end_while_lists_run(each_driver: Driver, run_python: RunPython) -> None:
    env = {"OCL_ICD_FILENAMES": each_driver.library, "OCL_ICD_VENDORS": each_driver.library}
    done = run_python(LEFT_RUNNING, env={**env, "PYTHONPATH": str(HERE.parents[1])})
    assert (done.code, done.out, done.err) == (0, "left\n", "")
