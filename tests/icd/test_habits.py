"""Habits of drivers: each changes what the fake driver of that name is asked, and nothing for
another.

The reference adapter runs in a child process on the fake driver alone, which writes down its calls.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from helpers.drivers import Driver
from helpers.support import ROOT, FakeDriver, RunPython

from fairlead.icd.driver_profiles import find_profile_by_names

pytestmark = pytest.mark.slow

INTEL = {"name": '"Intel(R) OpenCL"', "vendor": '"Intel(R) Corporation"'}
NVIDIA = {"name": '"NVIDIA CUDA"'}
POCL = {"name": '"Portable Computing Language"', "version": '"OpenCL 3.0 PoCL 7.1"'}
OTHER = {"name": '"Another"'}

#: `ur` calls the adapter; there are a device, a context, an in-order queue and a kernel.
PRELUDE = f"""
import ctypes, sys, threading
sys.path.insert(0, {str(ROOT / "tests")!r})
from pathlib import Path
from helpers.launching import MEM, POINTER, rows
from helpers.ur_calls import Calls, array
from fairlead import plugins
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.discovery import PluginCandidate
library = Path(plugins.__file__).with_name("libur_adapter_fairlead.so.0")
adapter = load(PluginCandidate(str(library), "test", backend="opencl"))
ur = Calls(adapter.table)
(device,) = (found.handle for found in adapter.devices)
context = ur.make("urContextCreate", 1, array(device), None)
def new_queue(flags):
    kind = UR["UR_STRUCTURE_TYPE_QUEUE_PROPERTIES"]
    properties = UR.get_struct("ur_queue_properties_t")(kind, None, UR[f"UR_QUEUE_FLAG_{{flags}}"])
    return ur.make("urQueueCreate", context, device, ctypes.byref(properties))
queue = new_queue("PROFILING_ENABLE")
def new_kernel():
    source = ctypes.create_string_buffer(b"kernel void f() {{}}")
    program = ur.make("urProgramCreateWithIL", context, source, len(source) - 1, None)
    ur.ok("urProgramBuild", context, program, None)
    return ur.make("urKernelCreate", program, b"f")
def launch(kernel, *arguments):
    given = rows(*arguments)
    head = queue, kernel, 1, None, sizes, None, len(given), given
    return ur("urEnqueueKernelLaunchWithArgsExp", *head, None, 0, None, None)
sizes = (ctypes.c_size_t * 3)(8, 8, 8)
memory = ctypes.create_string_buffer(4096)
def new_buffer(size=4096):
    return ur.make("urMemBufferCreate", context, UR["UR_MEM_FLAG_READ_WRITE"], size, None)
"""


class Habit:
    """Runs code on a fake driver: `run(code, knobs)` gives the calls that the driver noted."""

    def __init__(self, fake_driver: FakeDriver, run_python: RunPython, folder: Path) -> None:
        self.driver, self.python, self.folder = fake_driver, run_python, folder
        self.out, self.code = "", 0

    def run(
        self, code: str, knobs: dict[str, str], switches: str = "", calls: str = "c", **more: object
    ) -> list[str]:
        log = self.folder / "calls"
        log.unlink(missing_ok=True)
        # calls before and after the code itself do not count
        begin = f"\nopen({str(log)!r}, 'w').close()\n"
        end = f"\nopen({str(log)!r}, 'a').write('end\\n')\n"
        done = self.python(
            PRELUDE + begin + code + end,
            env={
                "OCL_ICD_VENDORS": str(self.driver(numbered=0, **knobs, **more)),
                "FAIRLEAD_PROBE": "0",
                "FAIRLEAD_QUIRKS": switches,
                "FAIRLEAD_CALLS": calls,
                "FAKE_LOG": str(log),
            },
            check=False,
        )
        self.out, self.code = done.out.strip(), done.code
        assert self.code in (0, -signal.SIGABRT), done.err
        return log.read_text().partition("end\n")[0].splitlines()


@pytest.fixture
def habit(fake_driver: FakeDriver, run_python: RunPython, tmp_path: Path) -> Habit:
    return Habit(fake_driver, run_python, tmp_path)


#: In a thread of its own: the main thread never waits in a driver, because of Ctrl-C.
IN_A_THREAD = """
target = new_buffer()
def write(event=None):
    ur.ok("urEnqueueMemBufferWrite", queue, target, True, 0, 4096, memory, 0, None, event)
def read(event=None):
    ur.ok("urEnqueueMemBufferRead", queue, target, True, 0, 4096, memory, 0, None, event)
def work():
    {}
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
EVENTS = "write(ctypes.byref(ctypes.c_void_p())), read(ctypes.byref(ctypes.c_void_p()))"
PLAIN = ["clEnqueueWriteBuffer 1", "clEnqueueReadBuffer 1"]


def test_waits_one_at_a_time(habit: Habit) -> None:
    """A command blocks in the driver if no other thread does, or we wait for its event."""
    code = IN_A_THREAD.format(EVENTS)
    assert habit.run(code, OTHER) == PLAIN
    waited = ["clEnqueueWriteBuffer 0", "clWaitForEvents"]
    waited += ["clEnqueueReadBuffer 0", "clWaitForEvents"]
    assert habit.run(code, INTEL) == waited
    off = "-waits-one-at-a-time,-blocking-write-returns-early"
    assert habit.run(code, INTEL, off) == PLAIN
    # without events, in order: the driver's own function, which this thread alone is in
    assert habit.run(IN_A_THREAD.format("write(), read()"), INTEL) == PLAIN


@pytest.mark.parametrize("switches", ["", "-waits-one-at-a-time"])
def test_blocking_write_returns_early(habit: Habit, switches: str) -> None:
    """What else may use the buffer waits for the write: here another queue, or the program."""
    blocks = "clEnqueueWriteBuffer 1"
    alone = habit.run(IN_A_THREAD.format("write()"), INTEL, switches)
    assert alone == [blocks]
    waits = [blocks if switches else "clEnqueueWriteBuffer 0", "clWaitForEvents"]
    assert habit.run(IN_A_THREAD.format("write()"), INTEL, switches, "python") == waits
    waited = ["clFinish", *waits]
    created = 'other = new_queue("PROFILING_ENABLE")', ["clCreateCommandQueue"]
    for sharing, calls in (created, ('ur.make("urMemGetNativeHandle", target, device)', [])):
        code = IN_A_THREAD.format(f"write(); {sharing}; write()")
        assert habit.run(code, INTEL, switches) == [blocks, *calls, *waited]
    # the queue of the next program would not be alone
    closed = 'write(); ur.ok("urQueueRelease", queue); new_buffer()'
    assert habit.run(IN_A_THREAD.format(closed), INTEL, switches)[:2] == [blocks, "clFinish"]


COPY = """
target = ur.make("urUSMDeviceAlloc", context, device, None, None, 4096)
def copy(event=None):
    ur.ok("urEnqueueUSMMemcpy", queue, True, target, memory, 4096, 0, None, event)
thread = threading.Thread(target=lambda: ({}))
thread.start()
thread.join()
"""


def test_a_blocking_copy_of_usm_ends_with_its_call(habit: Habit) -> None:
    """The driver whose blocking writes return early is asked for nothing after a copy."""
    blocks = ["clEnqueueSVMMemcpy 1"]
    assert habit.run(COPY.format("copy()"), INTEL) == blocks
    with_event = COPY.format("copy(ctypes.byref(ctypes.c_void_p()))")
    assert habit.run(with_event, INTEL, "-waits-one-at-a-time") == blocks
    assert habit.run(with_event, INTEL) == ["clEnqueueSVMMemcpy 0", "clWaitForEvents"]


RELEASE = """
free = new_queue("OUT_OF_ORDER_EXEC_MODE_ENABLE")
ur.ok("urEnqueueEventsWait", free, 0, None, None)
ur.ok("urQueueRelease", free)
"""


def test_deferred_final_release(habit: Habit) -> None:
    """Else the queue is released at once, also while its commands run."""
    assert habit.run(RELEASE, OTHER)[-1] == "clReleaseCommandQueue"
    assert "clReleaseCommandQueue" not in habit.run(RELEASE, INTEL)
    off = "-deferred-final-release"
    assert habit.run(RELEASE, INTEL, off)[-1] == "clReleaseCommandQueue"


#: A command-buffer of four launches: the last two come after the first two.
GRAPH = """
free = new_queue("OUT_OF_ORDER_EXEC_MODE_ENABLE")
kernel, given = new_kernel(), rows((MEM, new_buffer()), (MEM, new_buffer()))
desc = UR.get_struct("ur_exp_command_buffer_desc_t")(0x1000, None, False, False, False)
made = ur.make("urCommandBufferCreateExp", context, device, ctypes.byref(desc))
points = []
for index in range(4):
    point = ctypes.c_uint32()
    after = (ctypes.c_uint32 * 2)(*points[:2]) if index > 1 else None
    head = made, kernel, 1, None, sizes, None, len(given), given, 0, None
    ur.ok("urCommandBufferAppendKernelLaunchWithArgsExp", *head, 2 if after else 0, after, 0, None,
          ctypes.byref(point), None, None)
    points.append(point.value)
ur.ok("urCommandBufferFinalizeExp", made)
ur.ok("urEnqueueCommandBufferExp", free, made, 0, None, None)
"""


def test_events_cheaper_than_queues(habit: Habit) -> None:
    """Else queues of the command-buffer's own keep the order."""
    pocl = {"name": '"Portable Computing Language"'}
    of_ours = {}
    for switches in ("", "-events-cheaper-than-queues"):
        calls = habit.run(GRAPH, pocl, switches)
        assert sum(call.startswith("clEnqueueNDRangeKernel") for call in calls) == 4
        of_ours[switches] = calls.count("clCreateCommandQueue") - 1
    assert of_ours[""] == 0
    assert of_ours["-events-cheaper-than-queues"] > 0
    assert habit.run(GRAPH, OTHER).count("clCreateCommandQueue") - 1 > 0


#: The program waits for the graph as any client of OpenCL does, twice.
FINISH = (
    GRAPH
    + """
from fairlead.icd.calls import call
native = ctypes.c_void_p()
ur.ok("urQueueGetNativeHandle", free, None, ctypes.byref(native))
for _ in range(2):
    call(native.value, "clFinish")
"""
)


def test_waits_run_commands(habit: Habit) -> None:
    """The thread that finishes the queue waits for each event of the graph's own queues before.

    Each of the two queues has one event that the other one waits for, and one at its end.
    """
    waited = ["clWaitForEvents"] * 4 + ["clFinish", "clFinish"]
    assert habit.run(FINISH, INTEL)[-6:] == waited
    for knobs, switches in ((INTEL, "-waits-run-commands"), (OTHER, "")):
        calls = habit.run(FINISH, knobs, switches)
        assert calls.count("clCreateCommandQueue") > 1
        assert "clWaitForEvents" not in calls and calls.count("clFinish") == 2


#: A graph waits for an event that fails. So do the replays after it.
FAILED = """
import sys
import numpy as np
import pyopencl as cl
import fairlead
device = next(one for one in fairlead.devices() if "PoCL" in one.platform.version)
context = cl.Context([device.to_pyopencl()])
source = "kernel void add(global int *a, int by) { a[get_global_id(0)] += by; }"
add = cl.Program(context, source).build().add
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 256)
properties = getattr(cl.command_queue_properties, sys.argv[1], 0)
queue = cl.CommandQueue(context, properties=properties)
with fairlead.capture(queue) as graph:
    before = None
    for number in range(3):
        before = [add(queue, (64,), (64,), buffer, np.int32(number), wait_for=before)]
loop = graph.finalize()
gate = cl.UserEvent(context)
ends = [loop.replay(queue, wait_for=[gate], times=3)]
ends += [loop.replay(queue) for _ in range(2)]
gate.set_status(-5)
print([end.command_execution_status < 0 for end in ends], flush=True)
"""


@pytest.mark.parametrize("calls", ["c", "python"])
def test_failed_events_look_complete(habit: Habit, calls: str) -> None:
    """What a wait, a query or a wait list finds complete is asked once more."""
    code = """
before, stamp = ctypes.c_void_p(), ctypes.c_void_p()
ur.ok("urEnqueueEventsWait", queue, 0, None, ctypes.byref(before))
ur.ok("urEventWait", 1, array(before))
ur.number("urEventGetInfo", before, "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS")
ur.ok("urEnqueueEventsWait", queue, 1, array(before), None)
"""

    def count(knobs: dict[str, str], switches: str = "") -> int:
        return habit.run(code, knobs, switches, calls).count("clSetEventCallback")

    assert count(OTHER) == count(INTEL, "-failed-events-look-complete") == 0
    assert count(INTEL) >= 3


@pytest.mark.driver("pocl_wheel")
@pytest.mark.parametrize("order", ["IN_ORDER", "OUT_OF_ORDER_EXEC_MODE_ENABLE"])
@pytest.mark.parametrize("engine", ["replay", "direct"])
def test_failed_events_need_references(
    pocl_wheel: Driver, run_python: RunPython, order: str, engine: str
) -> None:
    """Else the driver ends the process, though the program has all events that it was given."""
    env = {"OCL_ICD_FILENAMES": pocl_wheel.library, "FAIRLEAD_COMMAND_BUFFER": engine}
    assert run_python(FAILED, order, env=env).out.strip() == str([True] * 3)
    if engine == "replay":
        env |= {"FAIRLEAD_QUIRKS": "-failed-events-need-references"}
        assert run_python(FAILED, order, env=env, check=False).code == -signal.SIGABRT


@pytest.mark.parametrize(
    ("knobs", "row"),
    [
        (INTEL, "native-command-buffers-leak"),
        *(
            (
                {
                    "name": '"Portable Computing Language"',
                    "version": f'"OpenCL 3.0 PoCL {version}"',
                },
                "native-command-buffers-crash",
            )
            for version in ("3.1+debian", "5.0+debian", "6.0", "7.0")
        ),
    ],
    ids=["Intel", "3.1", "5.0", "6.0", "7.0"],
)
def test_native_command_buffers_are_used_on_request_only(
    habit: Habit, knobs: dict[str, str], row: str
) -> None:
    """A driver that ends the process when a launch is recorded is never asked to record one."""
    extension = {
        "device_extension": '"cl_khr_command_buffer"',
        "extension_version": "(0u << 22 | 9u << 12 | 4u)",
        "at_record": "abort()",
    }
    calls = habit.run(GRAPH, knobs, **extension)
    assert habit.code == 0 and "clCreateCommandBufferKHR" not in calls
    calls = habit.run(GRAPH, knobs, f"-{row}", **extension)
    assert habit.code == -signal.SIGABRT and "clCreateCommandBufferKHR" in calls


def test_a_sound_driver_s_command_buffers_are_measured(habit: Habit) -> None:
    for version in ("7.1+debian", "8.0-pre"):
        knobs = {
            "name": '"Portable Computing Language"',
            "version": f'"OpenCL 3.0 PoCL {version}"',
            "device_extension": '"cl_khr_command_buffer"',
            "extension_version": "(0u << 22 | 9u << 12 | 4u)",
        }
        assert "clCreateCommandBufferKHR" in habit.run(GRAPH, knobs)


def test_svm_needs_lock(habit: Habit) -> None:
    """Two threads meet in clSVMAlloc, if nothing keeps them apart."""
    code = """
def work():
    for _ in range(%d):
        found = ctypes.c_void_p()
        given = ur("urUSMDeviceAlloc", context, device, None, None, 64, ctypes.byref(found))
        sys.stdout.write(given + "\\n")
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    for knobs, switches in ((OTHER, ""), (NVIDIA, "-svm-needs-lock")):
        habit.run(code % 1, knobs, switches, svm_meets=1)
        assert habit.out.split() == ["SUCCESS"] * 2
    habit.run(code % 50, NVIDIA)
    assert habit.out.split() == ["SUCCESS"] * 100


def test_svm_arguments_stick(habit: Habit) -> None:
    """The kernel is made anew when a launch fails for that, on a driver that is known for it."""
    code = """
kernel, target = new_kernel(), new_buffer()
address = ur.make("urUSMDeviceAlloc", context, device, None, None, 64)
for _ in range(2):
    print(launch(kernel, (POINTER, address), (MEM, target)))
    print(launch(kernel, (MEM, target), (MEM, target)))
"""
    habit.run(code, NVIDIA, arguments_stick=1)
    assert habit.out.split() == ["SUCCESS"] * 4
    for knobs, switches in ((NVIDIA, "-svm-arguments-stick"), (OTHER, "")):
        habit.run(code, knobs, switches, arguments_stick=1)
        assert habit.out.split() == ["SUCCESS", "INVALID_KERNEL_ARGS"] * 2


def test_waiting_markers_without_times(habit: Habit) -> None:
    """A time stamp behind an event is that of a second marker, which waits for nothing."""
    code = """
before, stamp = ctypes.c_void_p(), ctypes.c_void_p()
ur.ok("urEnqueueEventsWait", queue, 0, None, ctypes.byref(before))
ur.ok("urEnqueueTimestampRecordingExp", queue, False, 1, array(before), ctypes.byref(stamp))
"""
    plain = ["clEnqueueMarkerWithWaitList 0", "clEnqueueMarkerWithWaitList 1"]
    assert habit.run(code, OTHER)[:3] == plain
    assert habit.run(code, NVIDIA, "-waiting-markers-without-times")[:3] == plain
    calls = habit.run(code, NVIDIA)
    assert calls[2] == "clCreateCommandQueue" and calls[4] == "clEnqueueMarkerWithWaitList 0"


@pytest.mark.parametrize("calls", ["c", "python"])
def test_barriers_with_lists_pass_others(habit: Habit, calls: str) -> None:
    """A marker has the wait list of a barrier on an out-of-order queue."""
    code = """
queue = new_queue("OUT_OF_ORDER_EXEC_MODE_ENABLE")
before, end = ctypes.c_void_p(), ctypes.c_void_p()
ur.ok("urEnqueueEventsWait", queue, 0, None, ctypes.byref(before))
ur.ok("urEnqueueEventsWaitWithBarrier", queue, 1, array(before), ctypes.byref(end))
ur.ok("urEnqueueEventsWaitWithBarrier", queue, 0, None, None)
"""
    plain = ["clEnqueueBarrierWithWaitList 1", "clEnqueueBarrierWithWaitList 0"]
    marker, barrier = "clEnqueueMarkerWithWaitList 1", "clEnqueueBarrierWithWaitList 0"

    def barriers(knobs: dict[str, str], switches: str = "") -> list[str]:
        made = habit.run(code, knobs, switches, calls)
        return [call for call in made if "WithWaitList" in call][1:]

    assert barriers(OTHER) == barriers(POCL, "-barriers-with-lists-pass-others") == plain
    assert barriers(POCL) == [marker, barrier, barrier]


def test_markers_have_no_place(habit: Habit) -> None:
    """The place of a replay in an out-of-order queue is a migration where a marker would pass
    barriers, or would wait for all."""
    code = """
from fairlead.icd.calls import enqueue_place, make_queue
from fairlead.icd.drivers import drivers
(one,) = (device for platform in drivers().platforms for device in platform.devices)
code = ctypes.c_int32()
made = one.platform.table.clCreateContext(
    None, 1, (ctypes.c_void_p * 1)(one.handle), None, None, ctypes.byref(code))
enqueue_place(make_queue(made, one.handle, 1), ())
"""
    migration, marker = "clEnqueueMigrateMemObjects", "clEnqueueMarkerWithWaitList 1"

    def place(knobs: dict[str, str], switches: str = "") -> str:
        made = habit.run(code, knobs, switches)
        return next(call for call in reversed(made) if call.startswith("clEnqueue"))

    assert place(OTHER) == place(INTEL, "-markers-pass-barriers") == marker
    assert place(POCL, "-markers-wait-for-all") == marker
    assert place(INTEL).startswith(migration) and place(POCL).startswith(migration)


@pytest.mark.parametrize(("version", "crashes"), [("3.0-rc2", True), ("5.0", True), ("7.1", False)])
def test_rect_copies_of_sub_buffers(habit: Habit, version: str, crashes: bool) -> None:
    """Where the driver crashes on sub-buffers, the parent is copied at the shifted origin: by a
    command-buffer, too."""
    code = """
target, region = new_buffer(), UR.get_struct("ur_buffer_region_t")(0x12, None, 1024, 512)
part = ur.make("urMemBufferPartition", target, UR["UR_MEM_FLAG_READ_WRITE"],
               UR["UR_BUFFER_CREATE_TYPE_REGION"], ctypes.byref(region))
at, size = UR.get_struct("ur_rect_offset_t")(8, 0, 0), UR.get_struct("ur_rect_region_t")(16, 2, 1)
rest = part, target, at, at, size, 64, 0, 64, 0, 0, None
buffer, none = ctypes.c_void_p(), (0, None, 0, None, None, None, None)
kind = UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_DESC"]
desc = UR.get_struct("ur_exp_command_buffer_desc_t")(kind)
ur.ok("urEnqueueMemBufferCopyRect", queue, *rest, None)
ur.ok("urCommandBufferCreateExp", context, device, ctypes.byref(desc), ctypes.byref(buffer))
ur.ok("urCommandBufferAppendMemBufferCopyRectExp", buffer, *rest[:-2], *none)
ur.ok("urCommandBufferFinalizeExp", buffer)
ur.ok("urEnqueueCommandBufferExp", queue, buffer, 0, None, None)
"""
    knobs = {"name": '"Portable Computing Language"', "version": f'"OpenCL 3.0 PoCL {version}"'}
    parent, part = (
        f"clEnqueueCopyBufferRect {what}" for what in ("buffer at 1032", "sub-buffer at 8")
    )
    assert habit.run(code, knobs) == [parent if crashes else part] * 2
    assert habit.run(code, knobs, "-rect-copies-of-sub-buffers") == [part] * 2


def test_local_size_suggestion_crashes(habit: Habit) -> None:
    code = """
kernel, suggested = new_kernel(), (ctypes.c_size_t * 3)()
ur.ok("urKernelGetSuggestedLocalWorkSize", kernel, queue, 1, sizes, sizes, suggested)
print(suggested[0])
"""
    knobs = {"name": '"Portable Computing Language"', "version": '"OpenCL 3.0 PoCL 8.0-pre"'}
    habit.run(code, knobs, at_suggestion="abort()")
    assert habit.code == 0 and int(habit.out) in (1, 2, 4, 8)
    habit.run(code, knobs, "-local-size-suggestion-crashes", at_suggestion="abort()")
    assert habit.code == -signal.SIGABRT


@pytest.mark.parametrize("knobs", [INTEL, OTHER], ids=["Intel", "another"])
def test_intel_device_code(habit: Habit, knobs: dict[str, str]) -> None:
    """Only Intel's drivers take what was compiled ahead of time for their devices."""
    code = """
option, target = ctypes.c_char_p(), ctypes.c_char_p(b"spir64_gen")
platform = adapter.platforms[0].handle
ur.ok("urPlatformGetBackendOption", platform, b"-ftarget-compile-fast", ctypes.byref(option))
print(option.value.decode() or "no option")
print(ur.number("urDeviceGetInfo", device, "UR_DEVICE_INFO_ESIMD_SUPPORT"))
binaries, index = (UR.get_struct("ur_device_binary_t") * 1)(), ctypes.c_uint32()
binaries[0].stype = UR["UR_STRUCTURE_TYPE_DEVICE_BINARY"]
binaries[0].pDeviceTargetSpec = ctypes.cast(target, ctypes.c_void_p)
print(ur("urDeviceSelectBinary", device, binaries, 1, ctypes.byref(index)))
"""
    habit.run(code, knobs, device_type="CL_DEVICE_TYPE_GPU")
    option, esimd, selected = habit.out.splitlines()
    is_intel = knobs is INTEL
    assert (option.startswith("-igc_opts"), esimd == "1", selected == "SUCCESS") == (is_intel,) * 3
    assert is_intel or selected == "INVALID_BINARY"


def test_nvidia_compiles_to_ptx() -> None:
    """Only NVIDIA's driver has engines told that its binaries are PTX, and what a launch costs."""
    nvidia = find_profile_by_names("NVIDIA CUDA", "NVIDIA Corporation", "OpenCL 3.0 CUDA 13.0.98")
    other = find_profile_by_names("Another", "NVIDIA Corporation", "OpenCL 3.0")
    assert (nvidia.compiles_to_ptx, nvidia.launch_seconds) == (True, 5e-6)
    assert (other.compiles_to_ptx, other.launch_seconds) == (False, None)


COMPILES = (
    PRELUDE
    + """
source = ctypes.create_string_buffer(b"kernel void f(global int *x) { *x = get_global_id(0); }")
program = ur.make("urProgramCreateWithIL", context, source, len(source) - 1, None)
if sys.argv[1] == "compile":
    ur.ok("urProgramCompile", context, program, None)
    ur.make("urProgramLink", context, 1, array(program), None)
else:
    ur.ok("urProgramBuild", context, program, None)
    kernel = ur.make("urKernelCreate", program, b"f")
    assert launch(kernel, (MEM, new_buffer().value)) == "SUCCESS"
    ur.ok("urQueueFinish", queue)
print("done", flush=True)
"""
)


@pytest.mark.driver("pocl_wheel")
def test_compiled_programs_in_cache(
    pocl_wheel: Driver, run_python: RunPython, tmp_path: Path
) -> None:
    """What one process compiles does no harm to another that builds the same."""
    env = {"OCL_ICD_FILENAMES": pocl_wheel.library, "OCL_ICD_VENDORS": str(tmp_path)}
    for folder, switches in (("with", ""), ("without", "-compiled-programs-in-cache")):
        (tmp_path / folder).mkdir()
        env |= {"POCL_CACHE_DIR": str(tmp_path / folder), "FAIRLEAD_QUIRKS": switches}
        assert run_python(COMPILES, "compile", env=env).out == "done\n"
        built = run_python(COMPILES, "build", env=env, check=False)
        assert (built.code, built.out) == (0, "done\n") or folder == "without", built.err
    assert built.code == -signal.SIGABRT
