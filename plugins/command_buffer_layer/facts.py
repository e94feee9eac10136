"""What devices and kernels say of themselves, asked once for each command-buffer.

A command-buffer keeps the kernels, so that no other kernel gets the handle of one.
"""

from __future__ import annotations

from typing import Any

from ...icd.calls import find_device_profile, query_bytes
from .entries import ask, ask_all, make_error

_DEVICE, _GROUP = "clGetDeviceInfo", "clGetKernelWorkGroupInfo"


class DeviceFacts:
    """A device.

    Args:
        device: a handle.

    Attributes:
        bits: the width of a size_t on it.
        most_items: the most work-items of a group in each dimension.
        has_images, has_svm: whether it has them.
        alignment: where sub-buffers may begin, in bits.
        queue_properties: those that its queues on the host may have.
        pointers_stick: see icd.driver_profiles (svm_arguments_stick).
    """

    def __init__(self, device: int) -> None:
        self.bits = ask_all(device, _DEVICE, "CL_DEVICE_ADDRESS_BITS", "uint32_t", 1)[0] or 64
        self.most_items = ask_all(device, _DEVICE, "CL_DEVICE_MAX_WORK_ITEM_SIZES", "size_t", 3)
        name = "CL_DEVICE_MEM_BASE_ADDR_ALIGN"
        self.alignment = max(1, ask_all(device, _DEVICE, name, "uint32_t", 1)[0])
        self.has_images = bool(_query_one(device, "CL_DEVICE_IMAGE_SUPPORT", "uint32_t"))
        self.has_svm = bool(_query_one(device, "CL_DEVICE_SVM_CAPABILITIES", "uint64_t"))
        name = "CL_DEVICE_QUEUE_ON_HOST_PROPERTIES"  # CL_DEVICE_QUEUE_PROPERTIES before OpenCL 2.0
        self.queue_properties = _query_one(device, name, "uint64_t")
        self.pointers_stick = find_device_profile(device).svm_arguments_stick

    def check_alignment(self, offset: int) -> None:
        """Check where a sub-buffer begins, in bytes.

        Raises:
            OpenCLError: CL_MISALIGNED_SUB_BUFFER_OFFSET.
        """
        if offset * 8 % self.alignment:
            raise make_error(
                "CL_MISALIGNED_SUB_BUFFER_OFFSET", f"a sub-buffer begins at byte {offset}"
            )


def _query_one(device: int, name: str, kind: str) -> int:
    return ask_all(device, _DEVICE, name, kind, 1)[0]


class KernelFacts:
    """A kernel, for a device.

    Args:
        kernel: a handle.

    Attributes:
        context, program: handles.
        is_built: whether its program is built for the device.
        required: the group size that its source requires, or zeros.
        most_items: the most work-items of a group, 0 if that is not known.
        is_uniform: whether all groups are known to have the same size: so in OpenCL C before 2.0.

    Raises:
        OpenCLError: CL_INVALID_KERNEL.
    """

    def __init__(self, kernel: int, device: int) -> None:
        def ask_kernel(name: str, kind: str = "uintptr_t") -> Any:
            code = "CL_INVALID_KERNEL"
            return ask(kernel, "clGetKernelInfo", f"CL_KERNEL_{name}", kind, code)

        self.context, self.program = ask_kernel("CONTEXT"), ask_kernel("PROGRAM")
        self.count = ask_kernel("NUM_ARGS", "uint32_t")
        status = "CL_PROGRAM_BUILD_STATUS"
        query = self.program, "clGetProgramBuildInfo", status, "int32_t", 1, device
        self.is_built = not ask_all(*query)[0]
        name = "CL_KERNEL_COMPILE_WORK_GROUP_SIZE"
        self.required = ask_all(kernel, _GROUP, name, "size_t", 3, device)
        name = "CL_KERNEL_WORK_GROUP_SIZE"
        self.most_items = ask_all(kernel, _GROUP, name, "size_t", 1, device)[0]
        self.is_uniform = _is_uniform(self.program, device)


def _is_uniform(program: int, device: int) -> bool:
    given = query_bytes(program, "clGetProgramBuildInfo", "CL_PROGRAM_BUILD_OPTIONS", device)
    if given is None:  # of a program that only its kernels keep; the driver checks the launches
        return False
    if b"-cl-uniform-work-group-size" in given:
        return True
    return not any(b"-cl-std=" + name in given for name in (b"CL2", b"CL3", b"CLC++"))
