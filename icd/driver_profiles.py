"""What fairlead knows of particular drivers: repairs of broken ones, and habits to work around.

`ROWS` is the table. A row is a *repair*, which changes how a driver is opened, or a *habit*, which
sets capabilities of a `DriverProfile`. All other code asks for capabilities and never compares
names: `find_profile(platform).waits_one_at_a_time`. If no row applies to a driver, every capability
has its default, the plain path.

`fairlead doctor` lists the rows that apply to each driver. FAIRLEAD_QUIRKS switches rows off: see
`parse_switches`.

To add a row, append it to `ROWS` and name a test in it. Then print docs/driver_profiles.md with
`python tests/helpers/profile_document.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

from ..loader.base.frozen_value import Value
from ..loader.base.library import Library, open_with_siblings
from ..loader.base.query import read_version
from ..loader.base.search import Candidate, filter_environ
from .repairs import find_path_inside_prefix, name_the_cpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from .objects import CLPlatform

_VARIABLE: Final = "FAIRLEAD_QUIRKS"


class DriverProfile(Value):
    """The capabilities of a driver that fairlead treats specially.

    The defaults are the plain path.
    """

    #: At most one thread may be in the driver's own wait; icd/command_buffer/waiting.py.
    waits_one_at_a_time: bool = False
    #: A thread that waits for an in-order queue runs its commands, and one that waits for an
    #: out-of-order queue runs none; icd/native/helping.c.
    waits_run_commands: bool = False
    #: Two threads in the driver's own waits can stand still while an out-of-order queue has
    #: commands. So queues of our own, beside which a program waits, are in order;
    #: fairlead/captured_graphs/own_queues.py.
    out_of_order_waits_hang: bool = False
    #: Seconds between the end of an out-of-order queue's commands and its final release. None: the
    #: queue is released at once; icd/command_buffer/queue_release.py.
    final_release_delay: float | None = None
    #: Events order a graph without markers faster than in-order queues do, up to this many
    #: dependencies for each command. Below 0: in-order queues are faster.
    events_per_command: int = -1
    #: The event of a command that fails is used after its last reference is gone. So those of
    #: commands that wait for events are held until they have ended; icd/native/held_events.c.
    holds_events: bool = False
    #: Of a command that waited for a failed event the status says that it is complete. Callbacks
    #: tell; icd/native/held_events.c.
    hides_failures: bool = False
    #: On an out-of-order queue a barrier with a wait list does not wait for earlier barriers. A
    #: marker with the list, and a barrier without one, stand for it; icd/native/replay.c.
    splits_barriers: bool = False
    #: On an out-of-order queue a marker with a wait list does not wait for earlier barriers, or it
    #: waits for all commands. A transfer stands for it; icd/native/replay.c.
    markers_have_no_place: bool = False
    #: Why the driver's own command-buffers are used only on request; "" if they are sound.
    native_command_buffer_defect: str = ""
    #: clSVMAlloc and clSVMFree fail in one of two threads that call them at the same time.
    svm_needs_lock: bool = False
    #: An argument of a kernel that was an SVM pointer once can never be a buffer or NULL again.
    svm_arguments_stick: bool = False
    #: A blocking write returns before its event is complete.
    blocking_write_returns_early: bool = False
    #: clEnqueueCopyBufferRect crashes on sub-buffers; it copies between their parents instead.
    copies_rects_of_parents: bool = False
    #: Image transfers crash on queues to sub-devices; they run on a queue to the whole device.
    transfers_images_on_whole_devices: bool = False
    #: Kernels with an image of a buffer (image1d_buffer_t) crash.
    images_of_buffers_crash: bool = False
    #: A marker that waits for events has no times, or those of another command.
    waiting_markers_have_no_times: bool = False
    #: A program with a kernel without arguments does not build with -cl-kernel-arg-info.
    argument_infos_break_builds: bool = False
    #: An option that clCompileProgram always gets, and clBuildProgram never.
    compile_option: str = ""
    #: clGetKernelSuggestedLocalWorkSizeKHR may be called.
    suggests_local_sizes: bool = True
    #: The target of binaries that were compiled ahead of time (UR_DEVICE_BINARY_TARGET_…), by
    #: device type ("CPU", "GPU", "ACCELERATOR").
    binary_targets: Mapping[str, str] = MappingProxyType({})
    #: What -ftarget-compile-fast becomes for the compiler of a platform with a GPU.
    fast_compile_option: str = ""
    #: GPUs run explicit SIMD kernels (ESIMD).
    has_esimd: bool = False
    #: Compiled kernels are functions of this process, in libraries that program binaries hold;
    #: icd/pocl_kernels.py.
    has_kernels_in_process: bool = False
    #: The program that links compiled kernels; fairlead/cli/doctor/problems.py.
    linker: str = ""
    #: It links each kernel with the libraries of a C compiler: libgcc.a and libc.so.
    links_compiler_libraries: bool = False
    #: Threads of the driver run all commands. They do not exist in a fork of the process.
    needs_its_threads: bool = False
    #: Program binaries are PTX, which CUDA runs after a translation; icd/nvidia_ptx.py.
    compiles_to_ptx: bool = False
    #: A kernel of a CUDA Graph may start before the one that it comes after has ended;
    #: icd/cuda_sharing.py.
    starts_kernels_early: bool = False
    #: What a small launch costs in a C loop, in seconds. None: the first replays tell.
    launch_seconds: float | None = None
    #: What a wait for the end costs besides, in seconds.
    wait_seconds: float = 0.0


class Applies(Value):
    """Which platforms a habit applies to. An empty field fits every platform.

    Attributes:
        name: CL_PLATFORM_NAME.
        vendor: how CL_PLATFORM_VENDOR begins.
        product: what stands before the driver's version in CL_PLATFORM_VERSION, such as "PoCL".
        since: the first driver version (major, minor) that it applies to.
        before: the first driver version that it applies to no longer; None if none is known.
    """

    name: str = ""
    vendor: str = ""
    product: str = ""
    since: tuple[int, int] = (0, 0)
    before: tuple[int, int] | None = None

    def fits(self, name: str, vendor: str, version: str) -> bool:
        """Whether the row fits a platform. A version that cannot be read is the oldest."""
        if self.name not in ("", name) or not vendor.startswith(self.vendor):
            return False
        if not self.product:
            return True
        number = read_version(version, f"{self.product} ") or (0, 0)
        return self.since <= number and (self.before is None or number < self.before)

    def __str__(self) -> str:
        parts = [f"the platform {self.name!r}" if self.name else ""]
        parts += [f"vendors that begin with {self.vendor!r}" if self.vendor else ""]
        for word, number in (("from", self.since), ("before", self.before)):
            parts += [
                f"{word} {self.product} {number[0]}.{number[1]}" if number and any(number) else ""
            ]
        return ", ".join(filter(None, parts))


class ProfileRow(Value):
    """One row of the table.

    Attributes:
        id: its name, as `fairlead doctor` prints it and FAIRLEAD_QUIRKS takes it.
        applies: the drivers that it is for: a habit's `Applies`, a repair's condition in words.
        does: what fairlead does on such a driver.
        evidence: the public issue or the measured case.
        test: the test that covers it, `folder/test_file.py::test_name` under tests/.
        sets: the capabilities that a habit sets.
        locate: repair before the driver is opened: another path for a candidate, or None.
        repair_open: repair after dlopen has failed: the opened library, or None.
        repair_platform: repair after a platform was bound: whether something was changed.
        means_no_platform: repair of an answer: whether the error of a library (its path) that was
            asked for its number of platforms says that it has none.
    """

    id: str
    applies: Applies | str
    does: str
    evidence: str
    test: str
    sets: Mapping[str, Any] = MappingProxyType({})
    locate: Callable[[Candidate], str | None] | None = None
    repair_open: Callable[[str], Library | None] | None = None
    repair_platform: Callable[[CLPlatform], bool] | None = None
    means_no_platform: Callable[[str, int], bool] | None = None

    @property
    def is_repair(self) -> bool:
        """Whether the row is a repair; otherwise it is a habit."""
        return not isinstance(self.applies, Applies)


# Switching rows off


def parse_switches(value: str | None = None) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the ids that FAIRLEAD_QUIRKS switches off, and the items without a meaning.

    The value is a comma-separated list. `-ID` switches one row off, `0` every repair. Habits stay
    on unless they are named, because a program may hang or crash without them.

    Args:
        value: the variable's value. None reads the environment, unless the process is set-uid.
    """
    given = filter_environ().get(_VARIABLE, "") if value is None else value
    ids = {row.id for row in ROWS}
    off, unknown = set[str](), list[str]()
    for item in filter(None, (part.strip() for part in given.split(","))):
        if item == "0":
            off |= {row.id for row in ROWS if row.is_repair}
        elif item[0] == "-" and item[1:] in ids:
            off.add(item[1:])
        else:
            unknown.append(item)
    return frozenset(off), tuple(unknown)


def list_active() -> tuple[ProfileRow, ...]:
    """The rows that are switched on."""
    off, _ = parse_switches()
    return tuple(row for row in ROWS if row.id not in off)


# Profiles


def find_profile(platform: CLPlatform) -> DriverProfile:
    """The profile of a platform's driver.

    Raises:
        OpenCLError: the driver does not tell its name, vendor or version.
    """
    return find_profile_by_names(platform.name, platform.vendor, platform.version)


def find_profile_by_names(name: str, vendor: str, version: str) -> DriverProfile:
    """The profile for CL_PLATFORM_NAME, CL_PLATFORM_VENDOR and CL_PLATFORM_VERSION."""
    return _make_profile(name, vendor, version, filter_environ().get(_VARIABLE, ""))


@cache
def _make_profile(name: str, vendor: str, version: str, switches: str) -> DriverProfile:
    profile = DriverProfile()
    for row in list_habits(name, vendor, version, switches):
        profile = profile.copy_with(**row.sets)
    return profile


def list_habits(
    name: str, vendor: str, version: str, switches: str | None = None
) -> tuple[ProfileRow, ...]:
    """The habits that apply to a platform and are switched on, in the order of the table."""
    off, _ = parse_switches(switches)
    return tuple(
        row
        for row in ROWS
        if isinstance(row.applies, Applies)
        and row.id not in off
        and row.applies.fits(name, vendor, version)
    )


# Repairs


def locate(candidate: Candidate) -> tuple[str, tuple[str, ...]]:
    """The path or soname to open for a candidate, and the ids of the repairs that changed it."""
    for row in list_active():
        path = row.locate and row.locate(candidate)
        if path:
            return path, (row.id,)
    return candidate.library, ()


def means_no_platform(path: str, code: int) -> bool:
    """Whether a driver's error says that it has no platform.

    Args:
        code: its answer to the question for the number of platforms.
    """
    judges = (row.means_no_platform for row in list_active())
    return code == _CL_PLATFORM_NOT_FOUND_KHR or any(judge(path, code) for judge in judges if judge)


def _is_neo_without_gpu(path: str, code: int) -> bool:
    return code == _CL_OUT_OF_HOST_MEMORY and os.path.basename(path).startswith("libigdrcl.")


def _name_the_cpu(platform: CLPlatform) -> bool:
    return _GENERIC_CPU in platform.version and name_the_cpu(platform)


# The table

_CL_OUT_OF_HOST_MEMORY: Final = -6
_CL_PLATFORM_NOT_FOUND_KHR: Final = -1001
_GENERIC_CPU: Final = "PoCL 3.0-rc2"
_INTEL: Final = Applies(name="Intel(R) OpenCL")
_POCL: Final = "Portable Computing Language"
_NVIDIA: Final = Applies(name="NVIDIA CUDA")

ROWS: Final = (
    ProfileRow(
        id="pip-icd-prefix",
        applies="manifests in a Python environment that name an absolute path that does not exist",
        does="opens the library of that name in the lib directory of the same environment",
        evidence="Intel's intel-opencl-rt wheel installs .icd files that name the prefix it was "
        "built in",
        test="icd/test_driver_profiles.py::test_a_manifest_that_names_a_build_prefix",
        locate=find_path_inside_prefix,
    ),
    ProfileRow(
        id="sibling-libraries",
        applies="drivers that need a library which dlopen does not find and which lies beside them",
        does="opens the libraries beside the driver first, by their paths",
        evidence="Intel's CPU driver from PyPI needs libsvml.so, libimf.so and others of its "
        "directory",
        test="icd/test_driver_profiles.py::test_libraries_that_lie_beside_the_driver",
        repair_open=open_with_siblings,
    ),
    ProfileRow(
        id="pocl-generic-cpu",
        applies=f"platforms whose version says {_GENERIC_CPU!r} and whose devices name the LLVM "
        "CPU 'generic' and an x86-64 Linux triple",
        does="gives the device an LLVM CPU name that its compiler knows: x86-64, x86-64-v2, -v3 or "
        "-v4, as the CPU's flags allow",
        evidence="PyPI's pocl-binary-distribution 3.0 fails every build on CPUs newer than its "
        "LLVM: unknown target CPU 'generic'",
        test="icd/test_driver_profiles.py::test_with_the_repair_it_builds_and_runs",
        repair_platform=_name_the_cpu,
    ),
    ProfileRow(
        id="no-platform-is-no-memory",
        applies="libigdrcl.so, Intel's driver for GPUs, that answers CL_OUT_OF_HOST_MEMORY when it "
        "is asked for the number of its platforms",
        does="takes the answer for CL_PLATFORM_NOT_FOUND_KHR: the driver is idle, not broken",
        evidence="Debian's intel-opencl-icd 22.43.24595 answers so on a machine without its GPU",
        test="icd/test_drivers.py::test_intels_driver_without_its_gpu",
        means_no_platform=_is_neo_without_gpu,
    ),
    ProfileRow(
        id="waits-one-at-a-time",
        applies=_INTEL,
        does="lets one thread at a time into the driver's wait; the others try for 30 µs, and then"
        " wait for a callback",
        evidence="2026.22.10: eight threads of a C program, with an out-of-order queue each, stood "
        "still after 5,000 rounds of three launches and a blocking read. A waiting thread runs "
        "commands, and two such threads can wait for each other",
        test="icd/test_habits.py::test_waits_one_at_a_time",
        sets={"waits_one_at_a_time": True},
    ),
    ProfileRow(
        id="waits-run-commands",
        applies=_INTEL,
        does="lets a program's wait for a replay on an out-of-order queue first wait for each "
        "event of the replay's own in-order queues, in order",
        evidence="2026.22.10 on two cores: the driver's thread runs one queue at a time. A thread "
        "that waits for an in-order queue runs commands too, and one that waits for an "
        "out-of-order queue runs none. There a C program with two chains took 1.7 times as long. "
        "A wait for the last events only made nothing faster where branches wait for each other "
        "(docs/task_levels.md)",
        test="icd/test_habits.py::test_waits_run_commands",
        sets={"waits_run_commands": True},
    ),
    ProfileRow(
        id="out-of-order-waits-hang",
        applies=_INTEL,
        does="runs captured graphs with host tasks on an in-order queue of fairlead's own. There "
        "its thread and PyOpenCL's clFinish wait at the same time",
        evidence="2026.22.10 on two busy cores: in bench/out_of_order_waits.c a thread waits for "
        "an out-of-order queue and three call clFinish for in-order ones. In 3 of 4 runs they "
        "stood still within 100 s. The thread that runs an out-of-order queue waits for its "
        "commands. If the driver's threads are all taken, it meanwhile runs another thread's wait, "
        "for the commands of itself. With in-order queues alone none of 12 runs of 100 s did. A "
        "program's own threads can still do so with its own out-of-order queues",
        test="captured_graphs/test_replays_on_queues.py::test_own_queues_where_waits_hang",
        sets={"out_of_order_waits_hang": True},
    ),
    ProfileRow(
        id="deferred-final-release",
        applies=_INTEL,
        does="releases an out-of-order queue one second after its last command has ended, or when "
        "Python ends",
        evidence="2026.22.10: the last command destroys the queue in the driver's own thread, "
        "which then waits for itself. A C program of two writes and a blocking read hung in its "
        "fourth round. One of three launches, a read and clFinish hung after 2,500. One that ended "
        "with four launches on such a queue crashed 24 times of 24 (Pure virtual function called). "
        "With the queue released it never did",
        test="icd/test_habits.py::test_deferred_final_release",
        sets={"final_release_delay": 1.0},
    ),
    ProfileRow(
        id="events-cheaper-than-queues",
        applies=Applies(name=_POCL),
        does="orders graphs without markers by events, up to 4 for each command, and not by queues",
        evidence="3.0 and 3.1: launches without an order took 1.5 times as long as a C loop on "
        "in-order queues, and 1.1 times by events. A command's end wakes a thread for the next. A "
        "marker waits for all commands before it",
        test="icd/test_habits.py::test_events_cheaper_than_queues",
        sets={"events_per_command": 4},
    ),
    ProfileRow(
        id="failed-events-need-references",
        applies=Applies(name=_POCL, product="PoCL", before=(3, 1)),
        does="holds the events of commands that wait for events until they have ended",
        evidence="3.0: a C program enqueues a native kernel that waits for a user event, releases "
        "its event and gives the user event the status -5. The driver unlocks the event after it "
        "has freed it, and ends the process. Later versions were not tried",
        test="icd/test_habits.py::test_failed_events_need_references",
        sets={"holds_events": True},
    ),
    ProfileRow(
        id="failed-events-look-complete",
        applies=_INTEL,
        does="asks by a callback whether a command failed whose status says that it is complete",
        evidence="2026.22.10: a C program enqueues a launch or a marker behind a user event, and "
        "gives that the status -5. The status of the command is 0 then. A callback gets -5, also "
        "one that is set after the end. clWaitForEvents tells -14, but not before all callbacks of "
        "the event have returned: one in a callback never returned",
        test="icd/test_habits.py::test_failed_events_look_complete",
        sets={"hides_failures": True},
    ),
    ProfileRow(
        id="barriers-with-lists-pass-others",
        applies=Applies(name=_POCL),
        does="enqueues a marker with the wait list, and a barrier without one, instead of a "
        "barrier with a wait list on an out-of-order queue. Graphs with barriers do so on every "
        "driver",
        evidence="a C program on an out-of-order queue enqueues a launch, a barrier, a barrier "
        "that waits for an older event, and a fill. The fill ran before the launch in 15 of 200 "
        "runs on 3.0, 5 on 3.1 and 139 on 7.1. With the two commands it did in none of 300",
        test="icd/test_habits.py::test_barriers_with_lists_pass_others",
        sets={"splits_barriers": True},
    ),
    ProfileRow(
        id="markers-pass-barriers",
        applies=_INTEL,
        does="begins a replay on an out-of-order queue with the migration of a small buffer where "
        "a marker with a wait list would do",
        evidence="2026.22.10: a program enqueues a long launch, a barrier, and a marker that waits "
        "for an older event. The marker was complete before the launch in 30 of 30 runs. A "
        "launch on another queue that waited for the marker was too early in 5 of 30. After a "
        "migration none was",
        test="icd/test_habits.py::test_markers_have_no_place",
        sets={"markers_have_no_place": True},
    ),
    ProfileRow(
        id="markers-wait-for-all",
        applies=Applies(name=_POCL),
        does="begins a replay on an out-of-order queue with the migration of a small buffer where "
        "a marker with a wait list would do",
        evidence="3.0: a program enqueues a launch that waits for a user event, and a marker that "
        "waits for a complete event. The marker waited for the launch, and a migration did not. "
        "Later versions were not tried",
        test="icd/test_habits.py::test_markers_have_no_place",
        sets={"markers_have_no_place": True},
    ),
    ProfileRow(
        id="native-command-buffers-leak",
        applies=_INTEL,
        does="replays command-buffers; the driver's own are used only on request",
        evidence="2026.22.10: a C program of nothing but enqueues of 16 launches grew by 31 KB an "
        "enqueue, and nothing gives the memory back",
        test="icd/test_habits.py::test_native_command_buffers_are_used_on_request_only",
        sets={
            "native_command_buffer_defect": "each enqueue of one leaks memory in this driver, "
            "some 2 KB a command"
        },
    ),
    ProfileRow(
        id="native-command-buffers-crash",
        applies=Applies(name=_POCL, product="PoCL", before=(7, 1)),
        does="replays command-buffers; the driver's own are used only on request",
        evidence="3.1 and 5.0 crash while their command-buffer records a launch that they should "
        "refuse, such as one with too large a work-group. 7.1 answers with a code, and no version "
        "before it is proven",
        test="icd/test_habits.py::test_native_command_buffers_are_used_on_request_only",
        sets={
            "native_command_buffer_defect": "recording a launch that this driver should refuse "
            "ends the process"
        },
    ),
    ProfileRow(
        id="svm-needs-lock",
        applies=_NVIDIA,
        does="lets one thread at a time into clSVMAlloc and clSVMFree",
        evidence="580.159: clSVMAlloc fails while another thread allocates or frees",
        test="icd/test_habits.py::test_svm_needs_lock",
        sets={"svm_needs_lock": True},
    ),
    ProfileRow(
        id="svm-arguments-stick",
        applies=_NVIDIA,
        does="makes a kernel anew before an argument that was an SVM pointer becomes something "
        "else",
        evidence="580.159: such a launch fails with CL_INVALID_KERNEL_ARGS, in clones of the "
        "kernel too",
        test="icd/test_habits.py::test_svm_arguments_stick",
        sets={"svm_arguments_stick": True},
    ),
    ProfileRow(
        id="waiting-markers-without-times",
        applies=_NVIDIA,
        does="takes a time stamp, and the end of a profiled replay on an out-of-order queue, from "
        "a second marker, which waits for nothing",
        evidence="580.159: a barrier, and a marker with a wait list, has no times, or those of an "
        "earlier command",
        test="icd/test_habits.py::test_waiting_markers_without_times",
        sets={"waiting_markers_have_no_times": True},
    ),
    ProfileRow(
        id="blocking-write-returns-early",
        applies=_INTEL,
        does="waits for a blocking write, unless only its in-order queue may use the buffer",
        evidence="2026.22.10: the call returns when the host's memory was read, and the event, "
        "and a read on another queue, see the write later. Blocking reads, and copies of USM and "
        "SVM, are complete when they return",
        test="icd/test_habits.py::test_blocking_write_returns_early",
        sets={"blocking_write_returns_early": True},
    ),
    ProfileRow(
        id="rect-copies-of-sub-buffers",
        applies=Applies(name=_POCL, product="PoCL", before=(7, 1)),
        does="copies rectangles between the parents of sub-buffers, at shifted origins",
        evidence="3.0 crashes in clEnqueueCopyBufferRect if a buffer is a sub-buffer; 7.1 does "
        "not, and no version before it is proven",
        test="icd/test_habits.py::test_rect_copies_of_sub_buffers",
        sets={"copies_rects_of_parents": True},
    ),
    ProfileRow(
        id="image-transfers-of-sub-devices",
        applies=Applies(name=_POCL, product="PoCL"),
        does="moves images on a queue to the whole device if the program's queue is to a "
        "sub-device",
        evidence="3.0 crashes in clEnqueueReadImage and its like on such a queue; no version is "
        "proven",
        test="plugins/opencl/test_images.py::test_every_transfer",
        sets={"transfers_images_on_whole_devices": True},
    ),
    ProfileRow(
        id="images-of-buffers-crash",
        applies=Applies(name=_POCL, product="PoCL"),
        does="makes no images of buffers for programs of Level Zero",
        evidence="3.0 crashes in clEnqueueNDRangeKernel if a kernel writes to an image1d_buffer_t, "
        "or reads one and has an SVM pointer; no version is proven",
        test="plugins/level_zero/test_image_buffers.py::test_where_there_are_none",
        sets={"images_of_buffers_crash": True},
    ),
    ProfileRow(
        id="local-size-suggestion-crashes",
        applies=Applies(name=_POCL, product="PoCL", since=(8, 0)),
        does="computes suggested local sizes itself and does not ask the driver",
        evidence="8.0-pre crashed in urKernelGetSuggestedLocalWorkSize, whose only call that other "
        "drivers do not get is clGetKernelSuggestedLocalWorkSizeKHR; 7.1 does not have that "
        "function",
        test="icd/test_habits.py::test_local_size_suggestion_crashes",
        sets={"suggests_local_sizes": False},
    ),
    ProfileRow(
        id="compiled-programs-in-cache",
        applies=Applies(name=_POCL, product="PoCL"),
        does="compiles programs that are linked later with a macro that nothing uses",
        evidence="3.0 keeps what clCompileProgram made under the name that clBuildProgram looks "
        "for. A later build of the same source with the same options takes it, in any process, "
        "and ends that process at its first launch: undefined symbol get_global_id; no version is "
        "proven",
        test="icd/test_habits.py::test_compiled_programs_in_cache",
        sets={"compile_option": "-DFAIRLEAD_COMPILES_ONLY"},
    ),
    ProfileRow(
        id="kernels-in-process",
        applies=Applies(name=_POCL),
        does="lets the engine `direct` call a graph's compiled kernels, if its self-test has "
        "passed. A later row can forbid a version",
        evidence="PoCL runs kernels in the process of the program, from libraries that its program "
        "binaries hold (docs/direct_engine.md)",
        test="captured_graphs/test_direct.py::test_without_its_row_it_is_off",
        sets={"has_kernels_in_process": True},
    ),
    ProfileRow(
        id="kernels-need-ld",
        applies=Applies(name=_POCL),
        does="lets `fairlead doctor` report that the program `ld` is not on PATH",
        evidence="without ld the first launch of a new kernel ends the process of 3.0, 5.0 and "
        "6.0: Final linking of kernel f failed. On 7.1 the event of the launch fails. PyPI's wheel "
        "brings no ld",
        test="cli/doctor/test_surroundings.py::test_pocl_without_ld_is_a_problem",
        sets={"linker": "ld"},
    ),
    ProfileRow(
        id="kernels-need-libgcc",
        applies=Applies(name=_POCL, product="PoCL", before=(3, 1)),
        does="lets `fairlead doctor` report that the system has no libgcc.a or no libc.so",
        evidence="on Debian 13 with binutils and no compiler the first launch of a new kernel ends "
        "the process of PyPI's 3.0: ld: cannot find -lgcc, -lgcc_s, -lc. Debian's own PoCL depends "
        "on clang, which brings both",
        test="cli/doctor/test_surroundings.py::test_pocl_without_libgcc_is_a_problem",
        sets={"links_compiler_libraries": True},
    ),
    ProfileRow(
        id="threads-end-in-forks",
        applies=Applies(name=_POCL),
        does="refuses a capture in a forked process that lacks the driver's threads",
        evidence="a process listed the devices of 3.0 and forked: in the child clFinish of a new "
        "context never returned, with PyOpenCL alone, too; Intel's driver works there",
        test="captured_graphs/test_processes.py::test_a_fork_without_the_drivers_threads",
        sets={"needs_its_threads": True},
    ),
    ProfileRow(
        id="nvidia-ptx",
        applies=_NVIDIA,
        does="lets graphs run as CUDA Graphs if the program shares its buffers with CUDA. It "
        "reckons with 5 µs for a launch and 12 µs for a wait",
        evidence="on an H200 with the driver 580.159 program binaries are PTX, and a C loop of "
        "small launches takes 5 µs for each (docs/cuda.md). On an H100 one that is waited for "
        "takes 17 µs",
        test="icd/test_habits.py::test_nvidia_compiles_to_ptx",
        sets={"compiles_to_ptx": True, "launch_seconds": 5e-6, "wait_seconds": 12e-6},
    ),
    ProfileRow(
        id="nvidia-argument-infos",
        applies=_NVIDIA,
        does="builds modules of Level Zero again without -cl-kernel-arg-info if they do not build "
        "with it",
        evidence="on an H100 with the driver 580.159 the option makes PTX that ptxas refuses, if a "
        "kernel has no arguments",
        test="plugins/level_zero/test_modules.py::test_infos_of_arguments_may_break_a_build",
        sets={"argument_infos_break_builds": True},
    ),
    ProfileRow(
        id="nvidia-early-kernels",
        applies=_NVIDIA,
        does="lets kernels in chains of a CUDA Graph start before the kernel before them has "
        "ended (programmatic dependent launch), on GPUs from sm_90 on",
        evidence="on an H200 with the driver 580.159 a chain takes 0.60 instead of 0.92 µs a "
        "kernel (docs/cuda.md)",
        test="captured_graphs/test_cuda_early.py::test_kernels_of_a_chain_start_early",
        sets={"starts_kernels_early": True},
    ),
    ProfileRow(
        id="intel-device-code",
        applies=Applies(vendor="Intel"),
        does="selects binaries compiled ahead of time by device type, knows the option for fast "
        "compilation, and reports ESIMD on GPUs",
        evidence="ur_api.h names the targets (UR_DEVICE_BINARY_TARGET_SPIRV64_…); DPC++'s own "
        "adapter gives Intel's compiler for GPUs the same option",
        test="icd/test_habits.py::test_intel_device_code",
        sets={
            "binary_targets": {
                "CPU": "spir64_x86_64",
                "GPU": "spir64_gen",
                "ACCELERATOR": "spir64_fpga",
            },
            "fast_compile_option": "-igc_opts 'PartitionUnit=1,SubroutineThreshold=50000'",
            "has_esimd": True,
        },
    ),
)
