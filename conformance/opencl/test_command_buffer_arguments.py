"""Wrong arguments of the functions that record: the errors of their clEnqueue… counterparts."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.conformance.arrays import sizes
from fairlead.conformance.checks import equal, forked, rule
from fairlead.conformance.opencl.commands import CLRecorder, CommandBuffers, expect_code
from fairlead.conformance.opencl.objects import CLObjects
from fairlead.icd.abi import OPENCL

KERNEL = "clCommandNDRangeKernelKHR"
IMAGE = "clCommandCopyImageKHR"


def read_errors() -> Iterator[Any]:
    """Yield a case for each line of errors.txt."""
    name = ""
    for line in Path(__file__).with_name("errors.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            codes, changes, wrong = line.strip().split(": ")
            answers = tuple(f"CL_{code}" for code in codes.split("|"))
            text = f"{' or '.join(answers)} if {wrong}"
            marks = rule(name, text)
            yield pytest.param(name, answers, changes, id=f"{name}-{wrong}", marks=marks)
        elif not line.startswith("#"):
            name = line


def make_argument(recorder: CLRecorder, word: str) -> Any:
    """Return the argument that a change of errors.txt gives."""
    if word == "@groups_of_four":
        return recorder.objects.kernel("groups_of_four", recorder.argument("buffer"))
    if word.startswith("@"):
        other, _, more = word[1:].partition("+")
        return recorder.argument(other) + int(more or 0)
    if word.startswith("*"):
        return ctypes.create_string_buffer(int(word[1:]))
    if "," in word:
        return sizes(*map(int, word.rstrip(",").split(",")))
    return None if word == "NULL" else int(word)


@forked
@pytest.mark.parametrize(("name", "answers", "changes"), read_errors())
def test_error(recorder: CLRecorder, name: str, answers: tuple[str, ...], changes: str) -> None:
    words = (change.split("=") for change in changes.split())
    given = {parameter: make_argument(recorder, word) for parameter, word in words}
    expect_code(recorder.answer(name, **given), *answers)


@forked
@rule(KERNEL, "CL_INVALID_KERNEL_ARGS if an argument has not been set")
def test_arguments_not_set(recorder: CLRecorder, objects: CLObjects) -> None:
    expect_code(
        recorder.answer(KERNEL, kernel=objects.kernel("increment")), "CL_INVALID_KERNEL_ARGS"
    )


@forked
@rule(IMAGE, "CL_IMAGE_FORMAT_MISMATCH if the images have different formats")
def test_image_formats(recorder: CLRecorder, objects: CLObjects) -> None:
    recorder.argument("src_image")
    form = OPENCL.get_struct("cl_image_format")(OPENCL["CL_RGBA"], OPENCL["CL_UNORM_INT8"])
    shape = OPENCL.get_struct("cl_image_desc")(OPENCL["CL_MEM_OBJECT_IMAGE2D"], 8, 8)
    flags = OPENCL["CL_MEM_READ_WRITE"]
    other = objects.make(
        "clCreateImage", objects.context, flags, ctypes.byref(form), ctypes.byref(shape), None
    )
    expect_code(recorder.answer(IMAGE, dst_image=other), "CL_IMAGE_FORMAT_MISMATCH")


@rule(
    KERNEL,
    "CL_INVALID_OPERATION for a kernel with printf without "
    "CL_COMMAND_BUFFER_CAPABILITY_KERNEL_PRINTF_KHR",
)
def test_printf(recorder: CLRecorder, objects: CLObjects, commands: CommandBuffers) -> None:
    program = objects.build('kernel void say(global int *a) { a[0] = 5; printf("%d", a[0]); }')
    buffer = objects.buffer([0])
    kernel = objects.kernel("say", buffer, program=program)
    if not commands.can("KERNEL_PRINTF"):
        expect_code(
            recorder.answer(KERNEL, kernel=kernel, global_work_size=sizes(1)),
            "CL_INVALID_OPERATION",
        )
        return
    recorder.launch(kernel, 1)
    recorder.finalize()
    recorder.enqueue()
    equal(objects.read(recorder.queue, buffer), [5], "what the kernel wrote")
