"""The drivers of GPUs for the commands: how each is found, and what its devices answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..loader.base.errors import FairleadError
from ..loader.cuda.abi import CUDA
from ..loader.cuda.driver import SEARCH as CUDA_SEARCH
from ..loader.gpu.driver import DriverDevice
from ..loader.gpu.search import GpuSearch
from ..loader.hip.abi import CONSTANTS
from ..loader.hip.driver import SEARCH as HIP_SEARCH

#: The searches, by the names of interfaces.
SEARCHES: Final[Mapping[str, GpuSearch[Any]]] = {"CUDA": CUDA_SEARCH, "HIP": HIP_SEARCH}
_PREFIX: Final = "CU_DEVICE_ATTRIBUTE_"


#: What rows of devices have already, or attributes say.
_LEFT_OUT: Final = frozenset({"number", "handle", "name", "capability"})


def query_gpu(interface: str, device: DriverDevice) -> dict[str, Any]:
    """Return what a driver tells of a device: by names, and as attributes under the API's names.

    Args:
        interface: a key of SEARCHES.
    """
    driver = SEARCHES[interface].get()
    told = {name.upper(): vars(device)[name] for name in vars(device).keys() - _LEFT_OUT}
    found = dict(sorted(told.items()))
    for theirs in CUDA.groups["CUdevice_attribute"].values():
        name = theirs if interface == "CUDA" else CONSTANTS.get(theirs)
        if name is None:
            continue
        try:
            found[name] = driver.attribute(device.handle, theirs.removeprefix(_PREFIX))
        except FairleadError:
            continue  # the driver, or its version, has no such attribute
    return found
