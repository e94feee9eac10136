"""Images: contents of every type, copies, memory with pitches, queries, and what is refused."""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any, Final

import pytest
from helpers.drivers import Driver
from helpers.usm_ways import forget_answers
from helpers.ze_bench import ZeBench
from helpers.ze_calls import new

from fairlead.conformance.ze.objects import IMAGE_SIZES
from fairlead.loader.ze.abi import ZE
from fairlead.plugins.level_zero import contexts, devices
from fairlead.plugins.opencl.usm.strategies import SVM

TO, FROM = "zeCommandListAppendImageCopyToMemory", "zeCommandListAppendImageCopyFromMemory"
END: Final = (None, 0, None)
Triple = tuple[int, int, int]


@pytest.fixture(params=["regular", "in-order", "immediate"])
def made(request: pytest.FixtureRequest, bench: ZeBench) -> int:
    """A command list of each kind."""
    if request.param == "immediate":
        return bench.immediate()
    return bench.list(in_order=request.param == "in-order")


def described(kind: str = "2D", size: Triple | None = None, **fields: Any) -> Any:
    """Return a ze_image_desc_t of bytes in RGBA."""
    x, y, z = size or IMAGE_SIZES[kind]
    count = {"1DARRAY": y, "2DARRAY": z}.get(kind, 1)
    given = {"width": x, "height": y, "depth": z, "arraylevels": count, "flags": 1} | fields
    desc = new("ze_image_desc_t", type=ZE[f"ZE_IMAGE_TYPE_{kind}"], **given)
    desc.format = formed()
    return desc


def formed(layout: str = "8_8_8_8", kind: str = "UINT", swizzle: str = "RGBA") -> Any:
    """Return a ze_image_format_t."""
    letters = (ZE[f"ZE_IMAGE_FORMAT_SWIZZLE_{letter}"] for letter in swizzle)
    return ZE.get_struct("ze_image_format_t")(
        ZE[f"ZE_IMAGE_FORMAT_LAYOUT_{layout}"], ZE[f"ZE_IMAGE_FORMAT_TYPE_{kind}"], *letters
    )


def image(bench: ZeBench, kind: str = "2D", **fields: Any) -> int:
    return bench.ze.make(
        "zeImageCreate", bench.context, bench.device, byref(described(kind, **fields))
    )


def pixels(size: Triple, first: int = 0) -> Any:
    """Return memory with pixels of four bytes, all different."""
    count = 4 * size[0] * size[1] * size[2]
    return ctypes.create_string_buffer(bytes((first + 7 * i) % 251 for i in range(count)), count)


def region(origin: Triple, size: Triple) -> Any:
    return ZE.get_struct("ze_image_region_t")(*origin, *size)


def part(data: bytes, whole: Triple, origin: Triple, size: Triple) -> bytes:
    """Return the pixels of a region."""
    return b"".join(
        data[at : at + 4 * size[0]]
        for z in range(origin[2], origin[2] + size[2])
        for y in range(origin[1], origin[1] + size[1])
        for at in [4 * (origin[0] + whole[0] * (y + whole[1] * z))]
    )


def inner(kind: str) -> tuple[Triple, Triple]:
    """Return a region inside an image of a type."""
    x, y, z = IMAGE_SIZES[kind]
    return (1, min(1, y - 1), min(1, z - 1)), (x - 2, max(1, y - 2), max(1, z - 1))


@pytest.mark.parametrize("usm", ["auto", "buffer", "svm"])
@pytest.mark.parametrize("kind", ["1DARRAY", "2DARRAY"])
def test_memory_has_pitches(
    bench: ZeBench, kind: str, usm: str, each_driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the way to a device allocation and back, also where drivers have only buffers or SVM.

    SVM is of coarse grain here: the host may not use its addresses.
    """
    if kind == "1DARRAY" and each_driver.name == "nvidia":
        pytest.skip("NVIDIA's driver copies no 1D arrays from buffers and to them")
    monkeypatch.setenv("FAIRLEAD_USM", usm)
    monkeypatch.setattr(contexts, "_shared", {})  # a new cl_context
    if usm == "svm":
        support = {**dict.fromkeys(("host", "shared", "cross", "system"), 0), "device": 3}
        monkeypatch.setattr(SVM, "support", lambda device: support)
    views, view_as_buffer = list[Any](), SVM.view_as_buffer
    monkeypatch.setattr(
        SVM, "view_as_buffer", lambda one: views.append(view_as_buffer(one)) or views[-1]
    )
    forget_answers()
    own = ZeBench(bench.ze, bench.driver)
    made = own.list(in_order=True)
    one, data, (_, size) = image(own, kind), pixels(IMAGE_SIZES[kind]), inner(kind)
    lines = kind == "1DARRAY"
    row, slice_ = (24, 24) if lines else (20, 60)
    room = slice_ * (size[1] if lines else size[2])
    desc = new("ze_device_mem_alloc_desc_t")
    memory = own.ze.make("zeMemAllocDevice", own.context, desc, room + 8, 64, own.device)
    dots, out = ctypes.create_string_buffer(b"." * room, room), ctypes.create_string_buffer(room)
    where = byref(region(inner(kind)[0], size))
    own.ze.ok(FROM, made, one, data, None, *END)
    copy = "zeCommandListAppendMemoryCopy"
    own.ze.ok(copy, made, memory + 8, dots, room, *END)
    pitches = (0, slice_) if lines else (row, slice_)
    own.ze.ok(f"{TO}Ext", made, memory + 8, one, where, *pitches, *END)
    own.ze.ok(f"{FROM}Ext", made, one, memory + 8, byref(region((0, 0, 0), size)), *pitches, *END)
    own.ze.ok(copy, made, out, memory + 8, room, *END)
    back = ctypes.create_string_buffer(len(data))
    own.ze.ok(TO, made, back, one, None, *END)
    own.finish(made)
    found = part(data.raw, IMAGE_SIZES[kind], inner(kind)[0], size)
    rows = [found[at : at + 4 * size[0]] for at in range(0, len(found), 4 * size[0])]
    starts = [
        y * (slice_ if lines else row) + z * slice_ for z in range(size[2]) for y in range(size[1])
    ]
    expected = bytearray(b"." * room)
    for at, one_row in zip(starts, rows, strict=True):
        expected[at : at + len(one_row)] = one_row
    assert out.raw == bytes(expected)
    assert part(back.raw, IMAGE_SIZES[kind], (0, 0, 0), size) == found
    assert usm != "svm" or (len(views) == 2 and all(views))
    own.ze.ok("zeMemFree", own.context, memory)
    own.close()
    forget_answers()


def test_an_image_may_be_destroyed_while_a_list_runs(bench: ZeBench) -> None:
    made, one, data = bench.list(in_order=True), image(bench), pixels(IMAGE_SIZES["2D"])
    out = ctypes.create_string_buffer(len(data))
    bench.ze.ok(FROM, made, one, data, None, *END)
    bench.ze.ok(TO, made, out, one, None, *END)
    bench.close_list(made)
    bench.run(made, wait=False)
    bench.ze.ok("zeImageDestroy", one)
    bench.ze.ok("zeCommandQueueSynchronize", bench.queue, (1 << 64) - 1)
    assert out.raw == data.raw


# queries


@pytest.mark.parametrize(("kind", "filters"), [("UINT", 1), ("UNORM", 3)])
def test_how_a_format_is_sampled(bench: ZeBench, kind: str, filters: int) -> None:
    desc, support = described(), new("ze_image_format_support_ext_properties_t")
    desc.format = formed(kind=kind)
    row = new("ze_image_properties_t", pNext=support)
    bench.ze.ok("zeImageGetProperties", bench.device, byref(desc), row)
    assert (row.samplerFilterFlags, support.supported) == (filters, 1)


def test_a_format_that_opencl_lacks(bench: ZeBench) -> None:
    desc, support = described(), new("ze_image_format_support_ext_properties_t", supported=1)
    desc.format = formed("NV12", "UNORM")
    row, out = new("ze_image_properties_t"), ctypes.c_void_p()
    ask = "zeImageGetProperties", bench.device, byref(desc)
    assert bench.ze.code(*ask, byref(row)) == "UNSUPPORTED_IMAGE_FORMAT"
    row.pNext = ctypes.addressof(support)
    bench.ze.ok(*ask, byref(row))
    assert (row.samplerFilterFlags, support.supported) == (0, 0)
    given = bench.context, bench.device, byref(desc), byref(out)
    assert bench.ze.code("zeImageCreate", *given) == "UNSUPPORTED_IMAGE_FORMAT"


def test_what_an_image_is(bench: ZeBench) -> None:
    one, other = image(bench), image(bench)
    row = bench.ze.properties(
        "zeImageGetMemoryPropertiesExp", "ze_image_memory_properties_exp_t", one
    )
    assert row.rowPitch >= 24
    assert row.size >= 96
    assert row.slicePitch >= 96
    found = set()
    for each in (one, other):
        properties = new("ze_image_allocation_ext_properties_t")
        bench.ze.ok("zeImageGetAllocPropertiesExt", bench.context, each, properties)
        found.add(properties.id)
    assert len(found) == 2
    bench.ze.ok("zeContextMakeImageResident", bench.context, bench.device, one)
    bench.ze.ok("zeContextEvictImage", bench.context, bench.device, one)


# refusals


@pytest.mark.parametrize(
    ("kind", "fields", "code"),
    [
        ("2D", {"width": 0}, "UNSUPPORTED_SIZE"),
        ("2D", {"width": 1 << 30}, "UNSUPPORTED_SIZE"),
        ("3D", {"depth": 0}, "UNSUPPORTED_SIZE"),
        ("2DARRAY", {"arraylevels": 0}, "UNSUPPORTED_SIZE"),
        ("2D", {"miplevels": 2}, "INVALID_ARGUMENT"),
        ("2D", {"flags": 8}, "INVALID_ENUMERATION"),
        ("2D", {"type": 6}, "INVALID_ENUMERATION"),
        ("2D", {"pNext": described()}, "UNSUPPORTED_FEATURE"),
    ],
)
def test_images_that_cannot_be(
    bench: ZeBench, kind: str, fields: dict[str, Any], code: str
) -> None:
    desc, out = described(kind), ctypes.c_void_p()
    for name, value in fields.items():
        setattr(desc, name, ctypes.addressof(value) if name == "pNext" else value)
    given = bench.context, bench.device, byref(desc), byref(out)
    assert bench.ze.code("zeImageCreate", *given) == code
    assert not out.value


def test_pointers_and_handles_that_are_missing(bench: ZeBench) -> None:
    one, made, memory = image(bench), bench.list(), ctypes.create_string_buffer(96)
    out, create = ctypes.c_void_p(), "zeImageCreate"
    both = bench.context, bench.device
    assert bench.ze.code(create, *both, None, byref(out)) == "INVALID_NULL_POINTER"
    assert bench.ze.code(create, *both, byref(described()), None) == "INVALID_NULL_POINTER"
    assert bench.ze.code(TO, made, None, one, None, *END) == "INVALID_NULL_POINTER"
    assert bench.ze.code(TO, made, memory, None, None, *END) == "INVALID_NULL_HANDLE"
    assert bench.ze.code(TO, made, memory, 64, None, *END) == "INVALID_ARGUMENT"
    assert bench.ze.code(TO, made, 64, one, None, *END) == "INVALID_ARGUMENT"
    bench.ze.ok("zeImageDestroy", one)
    assert bench.ze.code("zeImageDestroy", one) == "INVALID_ARGUMENT"
    assert bench.ze.code("zeImageDestroy", None) == "INVALID_NULL_HANDLE"


@pytest.mark.parametrize(
    ("origin", "size"),
    [
        ((0, 0, 0), (7, 1, 1)),
        ((6, 0, 0), (1, 1, 1)),
        ((0, 4, 0), (1, 1, 1)),
        ((0xFFFFFFFF, 0, 0), (0xFFFFFFFF, 1, 1)),
    ],
)
def test_regions_that_an_image_does_not_have(bench: ZeBench, origin: Triple, size: Triple) -> None:
    one, other, made = image(bench), image(bench), bench.list()
    memory, wrong = ctypes.create_string_buffer(96), byref(region(origin, size))
    assert bench.ze.code(TO, made, memory, one, wrong, *END) == "INVALID_SIZE"
    assert bench.ze.code(FROM, made, one, memory, wrong, *END) == "INVALID_SIZE"
    for regions in ((wrong, None), (None, wrong), (wrong, wrong)):
        routine = "zeCommandListAppendImageCopyRegion"
        assert bench.ze.code(routine, made, one, other, *regions, *END) == "INVALID_SIZE"


@pytest.mark.parametrize("size", [(0, 1, 1), (1, 0, 1), (0, 0, 0)])
def test_copies_of_no_pixels_only_signal(bench: ZeBench, size: Triple) -> None:
    """So do copies of no bytes."""
    one, made, events = image(bench), bench.list(), bench.events(3)
    data, nothing = pixels(IMAGE_SIZES["2D"]), byref(region((1, 1, 0), size))
    out = ctypes.create_string_buffer(len(data))
    bench.ze.ok(FROM, made, one, data, None, *END)
    bench.ze.ok(FROM, made, one, out, nothing, events[0])
    both = one, one, nothing, nothing
    bench.ze.ok("zeCommandListAppendImageCopyRegion", made, *both, events[1])
    bench.ze.ok(TO, made, out, one, nothing, events[2])
    assert [bench.ze.code("zeEventQueryStatus", event) for event in events] == 3 * ["NOT_READY"]
    bench.ze.ok(TO, made, out, one, None, *END)
    bench.close_list(made)
    bench.run(made)
    assert [bench.ze.code("zeEventQueryStatus", event) for event in events] == 3 * ["SUCCESS"]
    assert out.raw == data.raw


def test_copies_that_cannot_be(bench: ZeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    one, made, out = image(bench), bench.list(), ctypes.c_void_p()
    desc = described()
    desc.format = formed(kind="UNORM")
    other = bench.ze.make("zeImageCreate", bench.context, bench.device, byref(desc))
    copy, regions = "zeCommandListAppendImageCopy", "zeCommandListAppendImageCopyRegion"
    assert bench.ze.code(copy, made, one, other, *END) == "INVALID_ARGUMENT"
    assert bench.ze.code(copy, made, one, one, *END) == "OVERLAPPING_REGIONS"
    where = byref(region((0, 0, 0), (2, 2, 1))), byref(region((1, 1, 0), (2, 2, 1)))
    assert bench.ze.code(regions, made, one, one, *where, *END) == "OVERLAPPING_REGIONS"
    where = byref(region((0, 0, 0), (2, 2, 1))), byref(region((2, 2, 0), (1, 2, 1)))
    assert bench.ze.code(regions, made, one, one, *where, *END) == "INVALID_SIZE"
    memory = ctypes.create_string_buffer(96)
    assert bench.ze.code(f"{TO}Ext", made, memory, one, None, 23, 0, *END) == "INVALID_SIZE"
    with monkeypatch.context() as patch:
        patch.setattr(contexts, "_shared", {})  # as if it had other devices
        elsewhere = ZeBench(bench.ze, bench.driver)
        foreign = image(elsewhere)
        assert bench.ze.code(TO, made, memory, foreign, None, *END) == "INVALID_ARGUMENT"
        given = elsewhere.context, one, byref(new("ze_image_allocation_ext_properties_t"))
        assert bench.ze.code("zeImageGetAllocPropertiesExt", *given) == "INVALID_ARGUMENT"
        bench.ze.ok("zeImageDestroy", foreign)
        elsewhere.close()
    bench.close_list(made)
    assert bench.ze.code(TO, made, memory, one, None, *END) == "INVALID_ARGUMENT"
    del out


def test_a_device_without_images(bench: ZeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "has_images", lambda device: False)
    row = bench.ze.properties(
        "zeDeviceGetImageProperties", "ze_device_image_properties_t", bench.device
    )
    assert (row.maxImageDims1D, row.maxImageDims2D, row.maxSamplers) == (0, 0, 0)
    out = ctypes.c_void_p()
    given = bench.context, bench.device, byref(described()), byref(out)
    assert bench.ze.code("zeImageCreate", *given) == "UNSUPPORTED_FEATURE"
    support = new("ze_image_format_support_ext_properties_t", supported=1)
    properties = new("ze_image_properties_t", pNext=support)
    bench.ze.ok("zeImageGetProperties", bench.device, byref(described()), properties)
    assert support.supported == 0
