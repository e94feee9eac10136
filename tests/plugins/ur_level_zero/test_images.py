"""Images and samplers: drivers without the extension, drivers without images, and what is
refused."""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any, Final

import pytest

from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import URObjects
from fairlead.loader.ur.abi import UR
from fairlead.loader.ze.abi import ZE
from fairlead.plugins.ur_level_zero.devices import LZDevice
from fairlead.plugins.ur_level_zero.platforms import LZPlatform

#: Pixels along x, y and z of the images of each type.
KINDS: Final = {
    "IMAGE1D_ARRAY": (6, 4, 1),
    "IMAGE2D": (6, 4, 1),
    "IMAGE2D_ARRAY": (6, 4, 3),
    "IMAGE3D": (6, 4, 3),
}
READ, WRITE = "urEnqueueMemImageRead", "urEnqueueMemImageWrite"
Triple = tuple[int, int, int]


def described(calls: URCalls, kind: str = "IMAGE2D", **fields: int) -> Any:
    x, y, z = KINDS[kind]
    count = {"IMAGE1D_ARRAY": y, "IMAGE2D_ARRAY": z}.get(kind, 1)
    given = {"width": x, "height": y, "depth": z, "arraySize": count} | fields
    return calls.struct("ur_image_desc_t", type=UR[f"UR_MEM_TYPE_{kind}"], **given)


def formed(order: str = "RGBA", channel: str = "UNSIGNED_INT8") -> Any:
    numbers = UR[f"UR_IMAGE_CHANNEL_ORDER_{order}"], UR[f"UR_IMAGE_CHANNEL_TYPE_{channel}"]
    return UR.get_struct("ur_image_format_t")(*numbers)


def image(calls: URCalls, make: URObjects, context: int, kind: str = "IMAGE2D") -> int:
    given = byref(formed()), byref(described(calls, kind)), None
    made = calls.new("urMemImageCreate", context, UR["UR_MEM_FLAG_READ_WRITE"], *given)
    return make.own("urMemRelease", made)


def area(origin: Triple, size: Triple) -> tuple[Any, Any]:
    return UR.get_struct("ur_rect_offset_t")(*origin), UR.get_struct("ur_rect_region_t")(*size)


def pixels(count: int) -> Any:
    return ctypes.create_string_buffer(bytes(7 * i % 251 for i in range(4 * count)), 4 * count)


@pytest.mark.parametrize("extension", [True, False])
@pytest.mark.parametrize("flags", ["", "OUT_OF_ORDER_EXEC_MODE_ENABLE"])
@pytest.mark.parametrize("kind", KINDS)
def test_memory_has_pitches(
    kind: str,
    flags: str,
    extension: bool,
    calls: URCalls,
    make: URObjects,
    context: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the driver only moves memory without gaps."""
    has, (x, y, z), lines = LZPlatform.has, KINDS[kind], kind == "IMAGE1D_ARRAY"
    monkeypatch.setattr(
        LZPlatform, "has", lambda self, name: (extension or name[-3:] != "Ext") and has(self, name)
    )
    queue, one, data = make.queue(flags), image(calls, make, context, kind), pixels(x * y * z)
    whole, tight = area((0, 0, 0), (x, y, z)), (0, 0)
    calls.ok(WRITE, queue, one, True, *whole, *tight, data)
    row, slice_ = (0, 32) if lines else (32, 160)
    pitch = 32
    out = ctypes.create_string_buffer(b"." * (160 * z), 160 * z)
    calls.ok(READ, queue, one, True, *whole, row, slice_, out)
    expected = bytearray(b"." * (160 * z))
    for at in range(y * z):
        start = at % y * pitch + at // y * 160
        expected[start : start + 4 * x] = data.raw[4 * x * at : 4 * x * (at + 1)]
    assert out.raw == bytes(expected)
    other, back = image(calls, make, context, kind), ctypes.create_string_buffer(len(data))
    calls.ok(WRITE, queue, other, True, *whole, row, slice_, out)
    calls.ok(READ, queue, other, True, *whole, *tight, back)
    assert back.raw == data.raw


def test_a_2d_image_has_no_slice_pitch(
    calls: URCalls,
    make: URObjects,
    context: int,
    queue: int,
    behind: LZDevice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the extension says: with another one a driver may refuse."""
    routine, pitches = "zeCommandListAppendImageCopyToMemoryExt", list[tuple[int, int]]()
    append: Any = getattr(behind.table, routine)

    def note(*given: Any) -> int:
        pitches.append((given[4], given[5]))
        return append(*given)

    monkeypatch.setattr(behind.table, routine, note)
    one, out = image(calls, make, context), ctypes.create_string_buffer(128)
    whole = area((0, 0, 0), (6, 4, 1))
    calls.ok(READ, queue, one, True, *whole, 32, 160, out)
    assert pitches == [(32, 0)]


def test_an_image_is_no_buffer(calls: URCalls, make: URObjects, context: int, queue: int) -> None:
    one, out = image(calls, make, context), ctypes.create_string_buffer(64)
    buffer, wrong = make.buffer(), "INVALID_MEM_OBJECT"
    calls.fails("urEnqueueMemBufferRead", wrong, queue, one, True, 0, 16, out)
    calls.fails("urEnqueueMemBufferCopy", wrong, queue, buffer, one, 0, 0, 16)
    place = byref(ctypes.c_void_p())
    calls.fails("urEnqueueMemBufferMap", wrong, queue, one, True, 1, 0, 16, 0, None, None, place)
    calls.fails("urEnqueueMemUnmap", wrong, queue, one, out)
    part = UR.get_struct("ur_buffer_region_t")(UR["UR_STRUCTURE_TYPE_BUFFER_REGION"], None, 0, 16)
    flags, kind = UR["UR_MEM_FLAG_READ_WRITE"], UR["UR_BUFFER_CREATE_TYPE_REGION"]
    calls.fails("urMemBufferPartition", wrong, one, flags, kind, byref(part), place)
    name, size = UR["UR_IMAGE_INFO_WIDTH"], ctypes.c_size_t()
    calls.fails("urMemImageGetInfo", wrong, buffer, name, 8, out, size)


def test_formats_that_level_zero_lacks(calls: URCalls, context: int) -> None:
    form, desc = formed("SRGBA", "UNORM_INT8"), described(calls)
    given = UR["UR_MEM_FLAG_READ_WRITE"], byref(form), byref(desc), None
    out = byref(ctypes.c_void_p())
    calls.fails("urMemImageCreate", "UNSUPPORTED_IMAGE_FORMAT", context, *given, out)


def test_a_kernel_may_not_write_an_image_that_is_only_read(
    calls: URCalls, make: URObjects, context: int, behind: LZDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is told what kernels do with an image."""
    flags: list[int] = []
    create: Any = behind.table.zeImageCreate

    def note(context: int, device: int, desc: Any, out: Any) -> int:
        flags.append(desc._obj.flags)
        return create(context, device, desc, out)

    monkeypatch.setattr(behind.table, "zeImageCreate", note)
    for name in ("READ_ONLY", "READ_WRITE", "WRITE_ONLY"):
        given = byref(formed()), byref(described(calls)), None
        made = calls.new("urMemImageCreate", context, UR[f"UR_MEM_FLAG_{name}"], *given)
        make.own("urMemRelease", made)
    written = ZE["ZE_IMAGE_FLAG_KERNEL_WRITE"]
    assert flags == [0, written, written]


def test_a_device_without_images(
    calls: URCalls,
    make: URObjects,
    context: int,
    queue: int,
    behind: LZDevice,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, out = image(calls, make, context), ctypes.create_string_buffer(96)
    monkeypatch.setattr(behind, "images", ZE.get_struct("ze_device_image_properties_t")())
    given = UR["UR_MEM_FLAG_READ_WRITE"], byref(formed()), byref(described(calls)), None
    place, wrong = byref(ctypes.c_void_p()), "UNSUPPORTED_FEATURE"
    calls.fails("urMemImageCreate", wrong, context, *given, place)
    desc = calls.struct("ur_sampler_desc_t")
    calls.fails("urSamplerCreate", wrong, context, desc, place)
    whole = area((0, 0, 0), (6, 4, 1))
    calls.fails(READ, wrong, queue, one, True, *whole, 0, 0, out)


def test_a_driver_without_the_function(behind: LZDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    assert behind.has_images
    vars(behind).pop("images")
    monkeypatch.setattr(LZPlatform, "has", lambda self, name: name != "zeImageCreate")
    assert not behind.has_images
    vars(behind).pop("images")
