"""Level Zero driver: the driver, and the codes that errors of OpenCL and of the reference adapter
become.

The driver stands on the objects of the reference adapter (plugins/opencl): its platforms, devices,
contexts, programs and kernels, and its memory by address. These objects have no handles here. So
every kind of memory by address of OpenCL drivers works under Level Zero, too (FAIRLEAD_USM).

What the driver answers is raised as OpenCLError. Docstrings name the other errors.
"""

from __future__ import annotations

from typing import Final

from ...icd.errors import OpenCLError
from ...loader.ur.abi import UR, URError
from ...loader.ze.abi import ZE
from ..sdk.ze.chains import find_struct, make_failure, walk_chain
from ..sdk.ze.driver import LevelZeroDriver

driver: Final = LevelZeroDriver("LEVEL_ZERO")

#: The codes of Level Zero for OpenCL's. Another CL_INVALID_… becomes INVALID_ARGUMENT.
_CODES: Final = {
    "CL_DEVICE_NOT_FOUND": "UNINITIALIZED",
    "CL_DEVICE_NOT_AVAILABLE": "DEVICE_LOST",
    "CL_COMPILER_NOT_AVAILABLE": "DEPENDENCY_UNAVAILABLE",
    "CL_LINKER_NOT_AVAILABLE": "DEPENDENCY_UNAVAILABLE",
    "CL_MEM_OBJECT_ALLOCATION_FAILURE": "OUT_OF_DEVICE_MEMORY",
    "CL_OUT_OF_RESOURCES": "OUT_OF_DEVICE_MEMORY",
    "CL_OUT_OF_HOST_MEMORY": "OUT_OF_HOST_MEMORY",
    "CL_MEM_COPY_OVERLAP": "OVERLAPPING_REGIONS",
    "CL_BUILD_PROGRAM_FAILURE": "MODULE_BUILD_FAILURE",
    "CL_COMPILE_PROGRAM_FAILURE": "MODULE_BUILD_FAILURE",
    "CL_LINK_PROGRAM_FAILURE": "MODULE_LINK_FAILURE",
    "CL_INVALID_BINARY": "INVALID_NATIVE_BINARY",
    "CL_INVALID_KERNEL_NAME": "INVALID_KERNEL_NAME",
    "CL_INVALID_ARG_INDEX": "INVALID_KERNEL_ARGUMENT_INDEX",
    "CL_INVALID_ARG_SIZE": "INVALID_KERNEL_ARGUMENT_SIZE",
    "CL_INVALID_WORK_GROUP_SIZE": "INVALID_GROUP_SIZE_DIMENSION",
    "CL_INVALID_WORK_ITEM_SIZE": "INVALID_GROUP_SIZE_DIMENSION",
    "CL_INVALID_GLOBAL_WORK_SIZE": "INVALID_GLOBAL_WIDTH_DIMENSION",
    "CL_INVALID_OPERATION": "UNSUPPORTED_FEATURE",
}
#: The codes of Level Zero for those of Unified Runtime with another name.
_OF_ADAPTER: Final = {
    "INVALID_USM_SIZE": "UNSUPPORTED_SIZE",
    "INVALID_IMAGE_SIZE": "UNSUPPORTED_SIZE",
    "INVALID_OPERATION": "UNSUPPORTED_FEATURE",
    "COMPILER_NOT_AVAILABLE": "UNSUPPORTED_FEATURE",
    "INVALID_BINARY": "INVALID_NATIVE_BINARY",
    "PROGRAM_BUILD_FAILURE": "MODULE_BUILD_FAILURE",
    "PROGRAM_LINK_FAILURE": "MODULE_LINK_FAILURE",
    "INVALID_WORK_GROUP_SIZE": "INVALID_GROUP_SIZE_DIMENSION",
    "INVALID_WORK_ITEM_SIZE": "INVALID_GROUP_SIZE_DIMENSION",
    "OUT_OF_RESOURCES": "OUT_OF_DEVICE_MEMORY",
    "MEM_OBJECT_ALLOCATION_FAILURE": "OUT_OF_DEVICE_MEMORY",
}


def _find_code_of_opencl(error: OpenCLError) -> str:
    found = _CODES.get(error.code)
    if found is not None:
        return found
    return "INVALID_ARGUMENT" if error.code.startswith("CL_INVALID_") else "UNKNOWN"


def find_adapter_code(error: URError) -> str:
    """Return the name of the code that an error of the reference adapter becomes."""
    name = UR.errors.get(error.value, ("",))[0].removeprefix("UR_RESULT_ERROR_")
    name = _OF_ADAPTER.get(name, name)
    if f"ZE_RESULT_ERROR_{name}" in ZE.codes:
        return name
    return "INVALID_ARGUMENT" if name.startswith("INVALID_") else "UNKNOWN"


driver.codes[OpenCLError] = _find_code_of_opencl
driver.codes[URError] = find_adapter_code

__all__ = ["ZE", "driver", "find_adapter_code", "find_struct", "make_failure", "walk_chain"]
