"""Prints the names of the devices that the real Unified Runtime loader selects.

Usage: `python selected_devices.py LOADER NAME`. NAME is the number of UR_DEVICE_INFO_NAME. The
adapters and the selector come from the environment.
"""

import ctypes
import sys

lib = ctypes.CDLL(sys.argv[1])


def listed(function, *arguments):
    count = ctypes.c_uint32()
    assert function(*arguments, 0, None, ctypes.byref(count)) == 0
    found = (ctypes.c_void_p * count.value)()
    assert not count.value or function(*arguments, count, found, None) == 0
    return [ctypes.c_void_p(handle) for handle in found]


assert lib.urLoaderInit(0, None) == 0
count = ctypes.c_uint32()
assert lib.urAdapterGet(0, None, ctypes.byref(count)) == 0
adapters = (ctypes.c_void_p * count.value)()
assert lib.urAdapterGet(count, adapters, None) == 0
for adapter in adapters:
    for platform in listed(lib.urPlatformGet, ctypes.c_void_p(adapter)):
        for device in listed(lib.urDeviceGetSelected, platform, 1):
            name = ctypes.create_string_buffer(256)
            code = lib.urDeviceGetInfo(device, int(sys.argv[2]), ctypes.c_size_t(256), name, None)
            assert code == 0
            print(name.value.decode())
