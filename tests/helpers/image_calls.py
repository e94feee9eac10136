"""What the tests of images share: formats, descriptions, images, and what is in them."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from fairlead.icd.abi import OPENCL
from fairlead.loader.ur.abi import UR
from helpers.memory_calls import opencl, rect, region, struct
from helpers.ur_calls import Calls

#: The kinds of images, and how large those of the tests are: x, y, z.
KINDS: Final = {
    "IMAGE1D": (12, 1, 1),
    "IMAGE1D_ARRAY": (12, 5, 1),
    "IMAGE2D": (12, 5, 1),
    "IMAGE2D_ARRAY": (12, 5, 3),
    "IMAGE3D": (12, 5, 3),
}
READ_WRITE, USE, COPY = (
    UR[f"UR_MEM_FLAG_{name}"]
    for name in ("READ_WRITE", "USE_HOST_POINTER", "ALLOC_COPY_HOST_POINTER")
)
_STYPE: Final = UR["UR_STRUCTURE_TYPE_IMAGE_DESC"]


def image_format(order: str = "RGBA", channel: str = "UNSIGNED_INT8") -> Any:
    """A ur_image_format_t."""
    return struct(
        "ur_image_format_t",
        channelOrder=UR[f"UR_IMAGE_CHANNEL_ORDER_{order}"],
        channelType=UR[f"UR_IMAGE_CHANNEL_TYPE_{channel}"],
    )


def has_format(ur: Calls, context: int, order: str, channel: str) -> bool:
    """Whether the driver lists a format for images of two dimensions."""
    driver, native = opencl(ur, context)
    what = native, OPENCL["CL_MEM_READ_WRITE"], OPENCL["CL_MEM_OBJECT_IMAGE2D"]
    count = ctypes.c_uint32()
    assert driver.clGetSupportedImageFormats(*what, 0, None, ctypes.byref(count)) == 0
    listed = (OPENCL.get_struct("cl_image_format") * count.value)()
    assert driver.clGetSupportedImageFormats(*what, count, listed, None) == 0
    wanted = OPENCL[f"CL_{order}"], OPENCL[f"CL_{channel}"]
    return wanted in [(form.image_channel_order, form.image_channel_data_type) for form in listed]


def image_desc(kind: str, **fields: Any) -> Any:
    """A ur_image_desc_t; `fields` are set besides, or in place of others."""
    x, y, z = KINDS[kind]
    images = {"IMAGE1D_ARRAY": y, "IMAGE2D_ARRAY": z}.get(kind, 1)
    given = {"width": x, "height": y, "depth": z, "arraySize": images, "stype": _STYPE}
    given["type"] = UR[f"UR_MEM_TYPE_{kind}"]
    return UR.get_struct("ur_image_desc_t")(**(given | fields))


def create_image(
    ur: Calls,
    context: int,
    desc: Any,
    format: Any = None,
    *,
    flags: int = READ_WRITE,
    host: Any = None,
) -> tuple[str, ctypes.c_void_p]:
    """The code of urMemImageCreate, and the image."""
    made, form = ctypes.c_void_p(), format or image_format()
    given = ctypes.byref(form), ctypes.byref(desc), host, ctypes.byref(made)
    return ur("urMemImageCreate", context, flags, *given), made


def new_image(
    ur: Calls, context: int, kind: str = "IMAGE2D", format: Any = None, data: bytes | None = None
) -> ctypes.c_void_p:
    """An image of a kind, with some contents."""
    flags, host = READ_WRITE, None
    if data is not None:
        flags, host = flags | COPY, ctypes.create_string_buffer(data, len(data))
    code, made = create_image(ur, context, image_desc(kind), format, flags=flags, host=host)
    assert code == "SUCCESS"
    return made


def image_content(
    ur: Calls,
    queue: int,
    image: ctypes.c_void_p,
    size: tuple[int, int, int],
    origin: tuple[int, int, int] = (0, 0, 0),
    element_size: int = 4,
) -> bytes:
    """Pixels of an image, read tightly."""
    into = ctypes.create_string_buffer(size[0] * size[1] * size[2] * element_size)
    ur.ok("urEnqueueMemImageRead", queue, image, True, rect(*origin), region(*size), 0, 0, into)
    return into.raw
