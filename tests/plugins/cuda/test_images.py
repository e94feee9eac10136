"""Images on CUDA and HIP: memory objects and bindless images, in kernels.

On CUDA the kernel is PTX. The HIP of the tests gives kernels of OpenCL C the pixels as memory.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers.launching import last_error

from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR

from .conftest import Adapted, Knobs, Work, array, only_cuda, only_hip

#: Each work-item reads a pixel of an 8 x 8 texture of RGBA bytes, and writes 255 minus its bytes.
PTX = b""".version 8.0
.target sm_50
.address_size 64
.visible .entry invert(
    .param .u64 invert_param_0, .param .u64 invert_param_1
)
{
    .reg .b32 %r<8>;
    .reg .b16 %h<5>;
    .reg .b64 %d<3>;
    ld.param.u64 %d1, [invert_param_0];
    ld.param.u64 %d2, [invert_param_1];
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r1, %r1, %r2, %r3;
    and.b32 %r2, %r1, 7;
    shr.u32 %r3, %r1, 3;
    tex.2d.v4.u32.s32 {%r4, %r5, %r6, %r7}, [%d1, {%r2, %r3}];
    xor.b32 %r4, %r4, 255;
    xor.b32 %r5, %r5, 255;
    xor.b32 %r6, %r6, 255;
    xor.b32 %r7, %r7, 255;
    cvt.u16.u32 %h1, %r4;
    cvt.u16.u32 %h2, %r5;
    cvt.u16.u32 %h3, %r6;
    cvt.u16.u32 %h4, %r7;
    shl.b32 %r2, %r2, 2;
    sust.b.2d.v4.b8.trap [%d2, {%r2, %r3}], {%h1, %h2, %h3, %h4};
    ret;
}
"""
#: The same for HIP.
SOURCE = b"""
kernel void invert(global const uchar4 *from, global uchar4 *to) {
    to[get_global_id(0)] = (uchar)255 - from[get_global_id(0)];
}
"""
WIDTH, HEIGHT = 8, 8
DATA = bytes(range(256))
INVERTED = bytes(255 - byte for byte in DATA)
WHOLE = WIDTH, HEIGHT, 1


def _struct(name: str, **fields: Any) -> Any:
    kind = f"UR_STRUCTURE_TYPE_{name.upper().removeprefix('UR_').removesuffix('_T')}"
    made = UR.get_struct(name)(**fields)
    if kind in UR.constants:
        made.stype = UR[kind]
    return made


def _shape(width: int = WIDTH, height: int = HEIGHT, channel: str = "UNSIGNED_INT8") -> Any:
    """Return format and description of an image of RGBA."""
    order, kind = UR["UR_IMAGE_CHANNEL_ORDER_RGBA"], UR[f"UR_IMAGE_CHANNEL_TYPE_{channel}"]
    form = UR.get_struct("ur_image_format_t")(order, kind)
    sizes = {"width": width, "height": height, "depth": 1, "arraySize": 1}
    return form, _struct("ur_image_desc_t", type=UR["UR_MEM_TYPE_IMAGE2D"], **sizes)


def _refs(*structs: Any) -> tuple[Any, ...]:
    return tuple(ctypes.byref(one) for one in structs)


class Images:
    """Bindless images of a context.

    Args:
        work: what they are used with.
    """

    def __init__(self, work: Work) -> None:
        self.work, self.ur = work, work.ur
        self.place = work.context, work.device

    def allocate(self) -> int:
        given = *self.place, *_refs(*_shape())
        return self.ur.make("urBindlessImagesImageAllocateExp", *given).value or 0

    def sampled(self, memory: int) -> int:
        how = _struct(
            "ur_sampler_desc_t",
            addressingMode=UR["UR_SAMPLER_ADDRESSING_MODE_CLAMP_TO_EDGE"],
            filterMode=UR["UR_SAMPLER_FILTER_MODE_NEAREST"],
        )
        given = *self.place, memory, *_refs(*_shape(), how)
        return self.ur.make("urBindlessImagesSampledImageCreateExp", *given).value or 0

    def unsampled(self, memory: int) -> int:
        given = *self.place, memory, *_refs(*_shape())
        return self.ur.make("urBindlessImagesUnsampledImageCreateExp", *given).value or 0

    def copy(self, kind: str, source: Any, target: Any, size: Any = WHOLE, **at: Any) -> str:
        form, desc = _shape()
        offset = UR.get_struct("ur_rect_offset_t")
        region = _struct(
            "ur_exp_image_copy_region_t",
            srcOffset=offset(*at.get("start", (0, 0, 0))),
            dstOffset=offset(*at.get("to", (0, 0, 0))),
            copyExtent=UR.get_struct("ur_rect_region_t")(*size),
        )
        given = source, target, *_refs(desc, desc, form, form, region)
        kinds = 0, UR[f"UR_EXP_IMAGE_COPY_INPUT_TYPES_{kind}"]
        queue = self.work.queue
        code = self.ur("urBindlessImagesImageCopyExp", queue, *given, *kinds)
        self.ur.ok("urQueueFinish", queue)
        return code

    def pixels(self, memory: int) -> bytes:
        out = ctypes.create_string_buffer(len(DATA))
        assert self.copy("IMAGE_TO_MEM", memory, out) == "SUCCESS"
        return out.raw

    def free(self, memory: int) -> None:
        self.ur.ok("urBindlessImagesImageFreeExp", *self.place, memory)


@pytest.fixture
def images(work: Work) -> Images:
    return Images(work)


def _invert(work: Work, adapted: Adapted) -> int:
    """Return the kernel."""
    if adapted.plugin.backend == "hip":
        return work.kernel("invert", SOURCE)
    ur, data = work.ur, ctypes.create_string_buffer(PTX)
    lengths = (ctypes.c_size_t * 1)(len(PTX))
    places = (ctypes.c_void_p * 1)(ctypes.addressof(data))
    given = work.context, 1, array(work.device), lengths, places, None
    program = ur.make("urProgramCreateWithBinary", *given)
    ur.ok("urProgramBuild", work.context, program)
    return ur.make("urKernelCreate", program, b"invert").value or 0


def test_a_kernel_reads_a_texture_and_writes_a_surface(
    work: Work, images: Images, adapted: Adapted
) -> None:
    source, target = images.allocate(), images.allocate()
    assert images.copy("MEM_TO_IMAGE", DATA, source) == "SUCCESS"
    texture, surface = images.sampled(source), images.unsampled(target)
    work.launch(_invert(work, adapted), ctypes.c_uint64(texture), ctypes.c_uint64(surface))
    assert images.pixels(target) == INVERTED
    destroy = "urBindlessImages{}ImageHandleDestroyExp"
    work.ur.ok(destroy.format("Sampled"), *images.place, texture)
    work.ur.ok(destroy.format("Unsampled"), *images.place, surface)
    images.free(source)
    images.free(target)


def test_a_kernel_takes_an_image_as_a_surface(work: Work, images: Images, adapted: Adapted) -> None:
    ur, source = work.ur, images.allocate()
    assert images.copy("MEM_TO_IMAGE", DATA, source) == "SUCCESS"
    flags = UR["UR_MEM_FLAG_READ_WRITE"]
    image = ur.make("urMemImageCreate", work.context, flags, *_refs(*_shape()))
    texture = ctypes.c_uint64(images.sampled(source))
    work.launch(_invert(work, adapted), texture, BufferValue(image.value or 0))
    out = ctypes.create_string_buffer(len(DATA))
    where = UR.get_struct("ur_rect_offset_t")(0, 0, 0), UR.get_struct("ur_rect_region_t")(*WHOLE)
    ur.ok("urEnqueueMemImageRead", work.queue, image, True, *where, 0, 0, out)
    assert out.raw == INVERTED
    ur.ok("urMemRelease", image)


def test_a_region_is_copied_between_images_and_memory(images: Images) -> None:
    one, other = images.allocate(), images.allocate()
    assert images.copy("MEM_TO_IMAGE", DATA, one) == "SUCCESS"
    assert images.copy("MEM_TO_IMAGE", bytes(256), other) == "SUCCESS"
    places = {"start": (2, 3, 0), "to": (0, 1, 0)}
    assert images.copy("IMAGE_TO_IMAGE", one, other, (2, 1, 1), **places) == "SUCCESS"
    start = 4 * (3 * WIDTH + 2)
    expected = bytearray(256)
    expected[32:40] = DATA[start : start + 8]
    assert images.pixels(other) == expected
    out = ctypes.create_string_buffer(256)
    assert images.copy("IMAGE_TO_MEM", one, out, (2, 1, 1), **places) == "SUCCESS"
    assert out.raw == expected


@pytest.mark.parametrize("kind", ("Device", "Host", "Shared"))
def test_usm_is_copied_to_an_image_and_back(work: Work, images: Images, kind: str) -> None:
    memory, image = work.memory(kind, len(DATA)), images.allocate()
    work.put(memory, DATA)
    work.ur.ok("urQueueFinish", work.queue)
    assert images.copy("MEM_TO_IMAGE", memory, image) == "SUCCESS"
    work.put(memory, bytes(len(DATA)))
    assert images.copy("IMAGE_TO_MEM", image, memory) == "SUCCESS"
    assert work.get(memory, len(DATA)) == DATA
    images.free(image)


def test_what_there_is_not_is_refused(work: Work, images: Images) -> None:
    memory, ur = images.allocate(), work.ur
    assert images.copy("IMAGE_TO_MEM", memory, DATA, (9, 1, 1)) == "INVALID_SIZE"
    assert images.copy("IMAGE_TO_MEM", memory + 1, DATA) == "INVALID_VALUE"
    given = *images.place, memory, *_refs(*_shape(7))
    made = ctypes.byref(ctypes.c_uint64())
    create = "urBindlessImagesUnsampledImageCreateExp"
    assert ur(create, *given, made) == "INVALID_IMAGE_FORMAT_DESCRIPTOR"
    images.free(memory)
    assert ur("urBindlessImagesImageFreeExp", *images.place, memory) == "INVALID_VALUE"
    far = *images.place, *_refs(*_shape(1 << 20)), made
    assert ur("urBindlessImagesImageAllocateExp", *far) == "INVALID_IMAGE_SIZE"


def test_image_memory_tells_its_sizes(work: Work, images: Images) -> None:
    memory = images.allocate()
    for name, expected in (("WIDTH", WIDTH), ("ELEMENT_SIZE", 4), ("ROW_PITCH", 32)):
        value, size = ctypes.c_size_t(), ctypes.c_size_t()
        given = memory, UR[f"UR_IMAGE_INFO_{name}"], ctypes.byref(value), ctypes.byref(size)
        work.ur.ok("urBindlessImagesImageGetInfoExp", work.context, *given)
        assert (value.value, size.value) == (expected, 8)
    for channel, expected in (("FLOAT", 1), ("UNORM_SHORT_565", 0)):
        form, desc = _shape(channel=channel)
        given = *_refs(desc, form), UR["UR_EXP_IMAGE_MEM_TYPE_OPAQUE_HANDLE"]
        seen = ctypes.c_bool()
        ask = "urBindlessImagesGetImageSampledHandleSupportExp"
        work.ur.ok(ask, *images.place, *given, ctypes.byref(seen))
        assert seen.value == expected


def _create(work: Work, desc: Any, host: Any = None) -> ctypes.c_void_p:
    flags = UR["UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER"] if host else 0
    given = work.context, flags | UR["UR_MEM_FLAG_READ_WRITE"], *_refs(_shape()[0], desc), host
    return work.ur.make("urMemImageCreate", *given)


def test_slices_of_memory_may_end_within_a_row(work: Work) -> None:
    desc = _shape(2, 2)[1]
    desc.type, desc.depth = UR["UR_MEM_TYPE_IMAGE3D"], 2
    image = _create(work, desc, bytes(range(32)))
    out, where = ctypes.create_string_buffer(64), UR.get_struct("ur_rect_offset_t")(0, 0, 0)
    given = where, UR.get_struct("ur_rect_region_t")(2, 2, 2), 12, 30, out, 0, None, None
    work.ur.ok("urEnqueueMemImageRead", work.queue, image, True, *given)
    rows = [out.raw[at : at + 8] for at in (0, 12, 30, 42)]
    assert b"".join(rows) == bytes(range(32))
    work.ur.ok("urMemRelease", image)


def test_an_image_is_not_a_buffer(work: Work) -> None:
    ur, image = work.ur, _create(work, _shape()[1])
    out = ctypes.create_string_buffer(4)
    given = work.queue, image, True, 0, 4, out, 0, None, None
    assert ur("urEnqueueMemBufferRead", *given) == "INVALID_MEM_OBJECT"
    region = ctypes.byref(_struct("ur_buffer_region_t", origin=0, size=4))
    made = ctypes.byref(ctypes.c_void_p())
    part = image, UR["UR_MEM_FLAG_READ_WRITE"], UR["UR_BUFFER_CREATE_TYPE_REGION"], region, made
    assert ur("urMemBufferPartition", *part) == "INVALID_MEM_OBJECT"
    assert ur("urEnqueueMemUnmap", work.queue, image, out) == "INVALID_MEM_OBJECT"
    ur.ok("urMemRelease", image)


def test_an_image_that_cannot_be_filled_leaves_nothing(work: Work, fake: Knobs) -> None:
    flags, made = UR["UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER"], ctypes.c_void_p()
    given = work.context, flags, *_refs(*_shape()), DATA, ctypes.byref(made)
    before = fake.calls("ArrayDestroy")
    fake.fail("Memcpy3DAsync", 2)
    assert work.ur("urMemImageCreate", *given) == "OUT_OF_DEVICE_MEMORY"
    assert fake.calls("ArrayDestroy") == before + 1


def test_the_driver_may_give_a_handle_again_before_a_free_returns(
    work: Work, images: Images, adapted: Adapted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread gets the handle as soon as the driver has destroyed the array."""
    bindless, memory = adapted.module("bindless"), images.allocate()
    array_type, other = adapted.module("arrays").CuArray, object()
    destroy = array_type.destroy

    def destroy_and_reuse(self: Any) -> None:
        destroy(self)
        bindless._arrays[self.handle] = other

    monkeypatch.setattr(array_type, "destroy", destroy_and_reuse)
    images.free(memory)
    assert bindless._arrays.pop(memory, None) is other


def test_a_native_array_is_an_image(work: Work, adapted: Adapted) -> None:
    """HIP before 5.6 does not tell what an array looks like, so a wrong description is believed."""
    ur, image = work.ur, _create(work, _shape()[1], DATA)
    native = ur.make("urMemGetNativeHandle", image, work.device).value
    how = ctypes.byref(_struct("ur_mem_native_properties_t", isNativeHandleOwned=False))
    create = "urMemImageCreateWithNativeHandle"
    other = ur.make(create, native, work.context, *_refs(*_shape()), how)
    out, where = ctypes.create_string_buffer(256), UR.get_struct("ur_rect_offset_t")(0, 0, 0)
    given = where, UR.get_struct("ur_rect_region_t")(*WHOLE), 0, 0, out, 0, None, None
    ur.ok("urEnqueueMemImageRead", work.queue, other, True, *given)
    assert out.raw == DATA
    made = ctypes.byref(ctypes.c_void_p())
    wrong = native, work.context, *_refs(*_shape(7)), how, made
    believed = adapted.plugin.backend == "hip" and adapted.driver.version < (5, 6)
    assert ur(create, *wrong) == ("SUCCESS" if believed else "INVALID_IMAGE_FORMAT_DESCRIPTOR")
    ur.ok("urMemRelease", other)
    ur.ok("urMemRelease", image)


@only_hip
def test_hip_has_no_arrays_of_images(work: Work) -> None:
    form, desc = _shape()
    desc.type, desc.arraySize = UR["UR_MEM_TYPE_IMAGE2D_ARRAY"], 3
    flags, made = UR["UR_MEM_FLAG_READ_WRITE"], ctypes.byref(ctypes.c_void_p())
    given = work.context, flags, *_refs(form, desc), None, made
    assert work.ur("urMemImageCreate", *given) == "UNSUPPORTED_FEATURE"
    assert "HIP has no images of this type here" in last_error(work.ur)[0]


@only_hip
def test_gpus_without_images_say_so(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """AMD's GPUs for computing alone have no units for textures."""
    names = "IMAGE_SUPPORT", "IMAGE2D_MAX_WIDTH", "BINDLESS_IMAGES_SUPPORT_EXP"

    def answers() -> list[int]:
        asked = (f"UR_DEVICE_INFO_{name}" for name in names)
        return [work.ur.number("urDeviceGetInfo", work.device, name) for name in asked]

    assert answers() == [1, 16384, 1]
    monkeypatch.setenv("FAKE_HIP_IMAGES", "0")
    assert answers() == [0, 0, 0]
    made = ctypes.byref(ctypes.c_uint64())
    given = work.context, work.device, *_refs(*_shape()), made
    assert work.ur("urBindlessImagesImageAllocateExp", *given) == "UNSUPPORTED_FEATURE"


@only_hip
def test_a_driver_without_surfaces_reads_textures(
    work: Work, images: Images, adapted: Adapted, fake: Knobs
) -> None:
    """The code of a slot that the library lacks is 801."""
    source = images.allocate()
    assert images.copy("MEM_TO_IMAGE", DATA, source) == "SUCCESS"
    fake.fail_exported("hipCreateSurfaceObject", 801)
    made, out = ctypes.byref(ctypes.c_uint64()), work.memory(size=len(DATA))
    given = *images.place, source, *_refs(*_shape()), made
    create = "urBindlessImagesUnsampledImageCreateExp"
    assert work.ur(create, *given) == "UNSUPPORTED_FEATURE"
    work.launch(_invert(work, adapted), ctypes.c_uint64(images.sampled(source)), out)
    assert work.get(out, len(DATA)) == INVERTED


@only_cuda
def test_nvidias_assembler_takes_the_kernel(tmp_path: Path, adapted: object) -> None:
    ptxas = os.environ.get("PTXAS") or shutil.which("ptxas")
    if not ptxas:
        pytest.skip("needs ptxas: pip install nvidia-cuda-nvcc, or PTXAS=PATH")
    source = tmp_path / "invert.ptx"
    source.write_bytes(PTX)
    command = [ptxas, "-arch=sm_90", "-c", str(source), "-o", str(tmp_path / "invert.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
