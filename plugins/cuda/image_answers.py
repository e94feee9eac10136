"""What urDeviceGetInfo answers about images (memory_images.py, bindless.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from .core import API

if TYPE_CHECKING:
    from .devices import CuDevice


def _make_limit_query(name: str) -> Callable[[CuDevice], int]:
    return lambda device: API.query_image_limit(device, name)


def has_images(device: CuDevice) -> bool:
    """Return whether a device has images. Some of AMD's have none."""
    return API.query_image_limit(device, "2D_WIDTH") > 0


def _has_arrays(device: CuDevice) -> bool:
    return API.query_image_limit(device, "2D_LAYERED_LAYERS") > 0


#: Answers by the names of queries. No kernel takes a sampler.
IMAGES: Final[Mapping[str, Any]] = {
    "IMAGE_SUPPORT": has_images,
    **dict.fromkeys(
        ("MAX_READ_IMAGE_ARGS", "MAX_WRITE_IMAGE_ARGS", "MAX_READ_WRITE_IMAGE_ARGS"),
        lambda device: 128 * has_images(device),
    ),
    "IMAGE2D_MAX_WIDTH": _make_limit_query("2D_WIDTH"),
    "IMAGE2D_MAX_HEIGHT": _make_limit_query("2D_HEIGHT"),
    "IMAGE3D_MAX_WIDTH": _make_limit_query("3D_WIDTH"),
    "IMAGE3D_MAX_HEIGHT": _make_limit_query("3D_HEIGHT"),
    "IMAGE3D_MAX_DEPTH": _make_limit_query("3D_DEPTH"),
    "IMAGE_MAX_ARRAY_SIZE": _make_limit_query("2D_LAYERED_LAYERS"),
    "BINDLESS_IMAGES_SUPPORT_EXP": has_images,
    "IMAGE_ARRAY_SUPPORT_EXP": _has_arrays,
    **{
        f"BINDLESS_SAMPLED_IMAGE_FETCH_{dimensions}D_SUPPORT_EXP": has_images
        for dimensions in (1, 2, 3)
    },
    **dict.fromkeys(
        (
            *("BINDLESS_IMAGES_SHARED_USM_SUPPORT_EXP", "BINDLESS_IMAGES_1D_USM_SUPPORT_EXP"),
            *("BINDLESS_IMAGES_2D_USM_SUPPORT_EXP", "BINDLESS_SAMPLE_1D_USM_SUPPORT_EXP"),
            *("BINDLESS_SAMPLE_2D_USM_SUPPORT_EXP", "BINDLESS_IMAGES_GATHER_SUPPORT_EXP"),
            *("MIPMAP_SUPPORT_EXP", "MIPMAP_ANISOTROPY_SUPPORT_EXP", "CUBEMAP_SUPPORT_EXP"),
            *("MIPMAP_LEVEL_REFERENCE_SUPPORT_EXP", "CUBEMAP_SEAMLESS_FILTERING_SUPPORT_EXP"),
            "BINDLESS_SAMPLED_IMAGE_FETCH_1D_USM_SUPPORT_EXP",
            "BINDLESS_SAMPLED_IMAGE_FETCH_2D_USM_SUPPORT_EXP",
            "BINDLESS_UNIQUE_ADDRESSING_PER_DIM_SUPPORT_EXP",
        ),
        False,
    ),
}
