"""Samplers: how a kernel reads between the pixels of an image, and beyond its edges."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

from ..loader.base.forks import make_lock
from ..loader.base.never_copied import NeverCopied
from ..loader.ur.abi import UR
from .arguments import MAKERS, SAMPLER, Argument
from .errors import make_invalid_error, make_unsupported_error
from .handles import make_struct

if TYPE_CHECKING:
    from .context import Context

_ADDRESSING: Final = ("none", "clamp_to_edge", "clamp", "repeat", "mirrored_repeat")
_FILTERING: Final = ("nearest", "linear")


class Sampler(NeverCopied):
    """A kernel's argument of the type sampler_t. (SYCL: image_sampler)

    One sampler can be used with any image, on any device.

    Args:
        addressing: what is beyond the edges: "clamp_to_edge", the nearest pixel; "clamp", a colour
            of zeros; "repeat" and "mirrored_repeat", which need normalized coordinates; or "none",
            if the kernel reads nothing there.
        filtering: "nearest", the nearest pixel, or "linear", a mean of the nearest ones.
        normalized: whether coordinates are from 0 to 1 instead of numbers of pixels.

    Raises:
        SYCLError: invalid.
    """

    def __init__(
        self,
        addressing: str = "clamp_to_edge",
        filtering: str = "nearest",
        normalized: bool = False,
    ) -> None:
        self._handles: dict[Context, int] = {}
        for value, known in ((addressing, _ADDRESSING), (filtering, _FILTERING)):
            if value not in known:
                raise make_invalid_error(
                    f"a sampler has no mode {value!r}",
                    routine="Sampler",
                    remedy=f"one of {', '.join(known)}",
                )
        if addressing.endswith("repeat") and not normalized:
            raise make_invalid_error(
                f"{addressing!r} needs normalized coordinates",
                routine="Sampler",
                remedy=f"Sampler({addressing!r}, normalized=True)",
            )
        self.addressing, self.filtering, self.normalized = addressing, filtering, bool(normalized)
        self._lock = make_lock()

    def memory(self, context: Context) -> int:
        """Return the handle of its sampler in a context."""
        with self._lock:
            if context not in self._handles:
                self._handles[context] = self._create(context)
            return self._handles[context]

    def _create(self, context: Context) -> int:
        if not any(device.has("image") for device in context.devices):
            raise make_unsupported_error(
                f"{context.devices[0].name} has no images",
                routine="Sampler",
                remedy='choose a device of which device.has("image") is true',
            )
        desc = make_struct(
            "ur_sampler_desc_t",
            normalizedCoords=self.normalized,
            addressingMode=UR[f"UR_SAMPLER_ADDRESSING_MODE_{self.addressing.upper()}"],
            filterMode=UR[f"UR_SAMPLER_FILTER_MODE_{self.filtering.upper()}"],
        )
        return context.adapter.obtain("urSamplerCreate", context.handle, ctypes.byref(desc))

    def __del__(self) -> None:
        for context, handle in getattr(self, "_handles", {}).items():
            if context.adapter.open:
                context.adapter.ur.urSamplerRelease(handle)

    def __repr__(self) -> str:
        how = "normalized" if self.normalized else "pixels"
        return f"<Sampler {self.addressing} {self.filtering} {how}>"


def _make_argument(sampler: Any) -> Argument:
    size = ctypes.sizeof(ctypes.c_void_p)
    return Argument(SAMPLER, size, 0, 0, sampler, sampler, "sampler_t")


MAKERS[Sampler] = _make_argument
