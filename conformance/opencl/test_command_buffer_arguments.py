"""Wrong arguments of the functions that record: the errors of their clEnqueue… counterparts.

Buffers of cases have 256 bytes, images 8 × 8 pixels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.conformance.arrays import sizes
from fairlead.conformance.checks import equal, forked, rule
from fairlead.conformance.opencl.commands import CLRecorder, CommandBuffers, expect_code
from fairlead.conformance.opencl.objects import CLObjects
from fairlead.icd.abi import OPENCL

KERNEL = "clCommandNDRangeKernelKHR"

Change = Callable[[CLRecorder], dict[str, Any]]


def _give(**changes: Any) -> Change:
    return lambda recorder: changes


def _give_same(one: str, other: str, **changes: Any) -> Change:
    return lambda recorder: {one: recorder.argument(other), **changes}


BIG = 1 << 20
COPY, RECT, FILL = "clCommandCopyBufferKHR", "clCommandCopyBufferRectKHR", "clCommandFillBufferKHR"
TO_IMAGE, TO_BUFFER, IMAGE, FILL_IMAGE = (
    "clCommandCopyBufferToImageKHR",
    "clCommandCopyImageToBufferKHR",
    "clCommandCopyImageKHR",
    "clCommandFillImageKHR",
)
SVM_COPY, SVM_FILL = "clCommandSVMMemcpyKHR", "clCommandSVMMemFillKHR"
VALUE, OVERLAP = "CL_INVALID_VALUE", "CL_MEM_COPY_OVERLAP"

#: Function, what is wrong, the codes that answer it, and the arguments that make it wrong.
ERRORS: list[tuple[str, str, tuple[str, ...], Change]] = [
    (COPY, "src_offset and size reach beyond src_buffer", (VALUE,), _give(src_offset=248)),
    (COPY, "dst_offset and size reach beyond dst_buffer", (VALUE,), _give(dst_offset=248)),
    (COPY, "src_offset is beyond src_buffer", (VALUE,), _give(src_offset=BIG)),
    (COPY, "size is larger than the buffers", (VALUE,), _give(size=BIG)),
    (
        COPY,
        "source and destination overlap in a buffer",
        (OVERLAP,),
        _give_same("dst_buffer", "src_buffer", dst_offset=8),
    ),
    (RECT, "a part of region is 0", (VALUE,), _give(region=sizes(0, 1, 1))),
    (RECT, "region reaches beyond src_buffer", (VALUE,), _give(src_origin=sizes(254, 0, 0))),
    (RECT, "region reaches beyond dst_buffer", (VALUE,), _give(dst_origin=sizes(0, 64, 0))),
    (RECT, "src_row_pitch is not 0 and less than region[0]", (VALUE,), _give(src_row_pitch=2)),
    (RECT, "dst_row_pitch is not 0 and less than region[0]", (VALUE,), _give(dst_row_pitch=2)),
    (
        RECT,
        "src_slice_pitch is not 0 and less than region[1] rows",
        (VALUE,),
        _give(src_slice_pitch=1, region=sizes(4, 2, 1)),
    ),
    (
        RECT,
        "source and destination overlap in a buffer",
        (OVERLAP,),
        _give_same(
            "dst_buffer",
            "src_buffer",
            dst_origin=sizes(2, 0, 0),
            src_row_pitch=16,
            dst_row_pitch=16,
        ),
    ),
    (FILL, "pattern is NULL", (VALUE,), _give(pattern=None)),
    (FILL, "pattern_size is 0", (VALUE,), _give(pattern_size=0)),
    (FILL, "pattern_size is not a power of two", (VALUE,), _give(pattern_size=3, size=12)),
    (
        FILL,
        "pattern_size is more than 128",
        (VALUE,),
        _give(pattern_size=256, size=256, pattern=(ctypes.c_char * 256)()),
    ),
    (FILL, "offset is not a multiple of pattern_size", (VALUE,), _give(offset=2)),
    (FILL, "size is not a multiple of pattern_size", (VALUE,), _give(size=18)),
    (FILL, "offset and size reach beyond the buffer", (VALUE,), _give(offset=252)),
    (
        TO_IMAGE,
        "src_offset and the region's bytes reach beyond src_buffer",
        (VALUE,),
        _give(src_offset=224),
    ),
    (
        TO_IMAGE,
        "dst_origin and region reach beyond dst_image",
        (VALUE,),
        _give(dst_origin=sizes(6, 0, 0)),
    ),
    (
        TO_IMAGE,
        "the depth of a region of a 2D image is not 1",
        (VALUE,),
        _give(region=sizes(4, 1, 2)),
    ),
    (
        TO_IMAGE,
        "dst_image is a buffer",
        ("CL_INVALID_MEM_OBJECT",),
        _give_same("dst_image", "dst_buffer"),
    ),
    (
        TO_BUFFER,
        "dst_offset and the region's bytes reach beyond dst_buffer",
        (VALUE,),
        _give(dst_offset=224),
    ),
    (
        TO_BUFFER,
        "src_origin and region reach beyond src_image",
        (VALUE,),
        _give(src_origin=sizes(6, 0, 0)),
    ),
    (
        TO_BUFFER,
        "src_image is a buffer",
        ("CL_INVALID_MEM_OBJECT",),
        _give_same("src_image", "src_buffer"),
    ),
    (
        IMAGE,
        "src_origin and region reach beyond src_image",
        (VALUE,),
        _give(src_origin=sizes(0, 8, 0)),
    ),
    (
        IMAGE,
        "dst_origin and region reach beyond dst_image",
        (VALUE,),
        _give(dst_origin=sizes(0, 8, 0)),
    ),
    (
        IMAGE,
        "source and destination overlap in an image",
        (OVERLAP,),
        _give_same("dst_image", "src_image", dst_origin=sizes(2, 0, 0)),
    ),
    (FILL_IMAGE, "fill_color is NULL", (VALUE,), _give(fill_color=None)),
    (
        FILL_IMAGE,
        "origin and region reach beyond the image",
        (VALUE,),
        _give(origin=sizes(6, 0, 0)),
    ),
    (
        FILL_IMAGE,
        "the depth of a region of a 2D image is not 1",
        (VALUE,),
        _give(region=sizes(4, 1, 2)),
    ),
    (FILL_IMAGE, "image is a buffer", ("CL_INVALID_MEM_OBJECT",), _give_same("image", "buffer")),
    (SVM_COPY, "dst_ptr is NULL", (VALUE,), _give(dst_ptr=None)),
    (SVM_COPY, "src_ptr is NULL", (VALUE,), _give(src_ptr=None)),
    (
        SVM_COPY,
        "source and destination overlap",
        (OVERLAP,),
        lambda r: {"dst_ptr": r.argument("src_ptr") + 8},
    ),
    (SVM_FILL, "svm_ptr is NULL", (VALUE,), _give(svm_ptr=None)),
    (
        SVM_FILL,
        "svm_ptr is not aligned to pattern_size",
        (VALUE,),
        lambda r: {"svm_ptr": r.argument("svm_ptr") + 2},
    ),
    (SVM_FILL, "pattern is NULL", (VALUE,), _give(pattern=None)),
    (SVM_FILL, "pattern_size is 0", (VALUE,), _give(pattern_size=0)),
    (SVM_FILL, "pattern_size is not a power of two", (VALUE,), _give(pattern_size=3, size=12)),
    (SVM_FILL, "size is not a multiple of pattern_size", (VALUE,), _give(size=18)),
    (KERNEL, "work_dim is 0", ("CL_INVALID_WORK_DIMENSION",), _give(work_dim=0)),
    (
        KERNEL,
        "work_dim is more than 3",
        ("CL_INVALID_WORK_DIMENSION",),
        _give(work_dim=4, global_work_size=sizes(1, 1, 1, 1)),
    ),
    (
        KERNEL,
        "local_work_size is too large",
        ("CL_INVALID_WORK_GROUP_SIZE", "CL_INVALID_WORK_ITEM_SIZE"),
        _give(global_work_size=sizes(BIG), local_work_size=sizes(BIG)),
    ),
    (
        KERNEL,
        "local_work_size is not that of reqd_work_group_size",
        ("CL_INVALID_WORK_GROUP_SIZE",),
        lambda r: {
            "kernel": r.objects.kernel("groups_of_four", r.argument("buffer")),
            "local_work_size": sizes(2),
        },
    ),
]


@forked
@pytest.mark.parametrize(
    ("name", "answers", "change"),
    [
        pytest.param(
            name,
            answers,
            change,
            id=f"{name}-{wrong}",
            marks=rule(name, f"{' or '.join(answers)} if {wrong}"),
        )
        for name, wrong, answers, change in ERRORS
    ],
)
def test_error(recorder: CLRecorder, name: str, answers: tuple[str, ...], change: Change) -> None:
    expect_code(recorder.answer(name, **change(recorder)), *answers)


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
