"""PI served from Intel's adapter of 2025.3 answers queries as Intel's plugin of 2024 does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from helpers.support import RunPython

from fairlead.loader.pi.abi import PI
from fairlead.loader.pi.mapping import ENUMS

#: What the plugin answers against its own header: UR's bits of floating-point capabilities.
_PLUGIN_IS_WRONG = ("FP_CONFIG", "PLATFORM", "EXTENSIONS", "COMPOSITE_DEVICE")
#: Prints every info of the first device and of its platform: the code and the answer's digits. The
#: plugin aborts the process when it is asked for the partition type.
_INFOS = """
import ctypes, json, sys
from fairlead.loader.base.library import open_with_siblings
from fairlead.loader.base.query import query_handles
from fairlead.loader.pi.abi import PI, check, serve
from fairlead.loader.ur.binding import bind_adapter, bind_plugin

kind, path, *folders = sys.argv[1:]
library = open_with_siblings(path, folders)
pi = serve(bind_adapter(library).table) if kind == "adapter" else bind_plugin(library).table
platform = query_handles(pi.piPlatformsGet, "piPlatformsGet", check)[0]
kinds = platform, PI["PI_DEVICE_TYPE_ALL"]
device = query_handles(pi.piDevicesGet, "piDevicesGet", check, *kinds)[0]
found = {}
for group, ask, handle in (
    ("pi_platform_info", pi.piPlatformGetInfo, platform),
    ("pi_device_info", pi.piDeviceGetInfo, device),
):
    for value, name in PI.groups[group].items():
        if kind == "adapter" or name != "PI_DEVICE_INFO_PARTITION_TYPE":
            size = ctypes.c_size_t()
            code = ask(handle, value, 0, None, ctypes.byref(size))
            answer = ctypes.create_string_buffer(max(size.value, 1))
            code = code or ask(handle, value, size.value, answer, None)
            found[name] = code, answer.raw[: size.value].hex()
print(json.dumps(found))
"""


def test_infos_are_those_of_a_real_plugin(
    run_python: RunPython, real_plugins: Path, tmp_path: Path
) -> None:
    libraries = f"{sys.prefix}/lib"
    # not OCL_ICD_FILENAMES: ocl-icd does not know that
    (tmp_path / "intel.icd").write_text(f"{libraries}/libintelocl.so\n", encoding="utf-8")

    def ask(kind: str, path: str) -> dict[str, Any]:
        arguments = kind, str(real_plugins / path), str(real_plugins / "umf"), libraries
        return json.loads(
            run_python(_INFOS, *arguments, env={"OCL_ICD_VENDORS": str(tmp_path)}).out
        )

    served = ask("adapter", "ur-then/libur_adapter_opencl.so.0")
    plugin = ask("plugin", "pi/libpi_opencl.so")
    both = [
        name
        for name in plugin
        if served[name][0] == plugin[name][0] == 0 and not name.endswith(_PLUGIN_IS_WRONG)
    ]
    assert len(both) > 60

    def numbers(found: dict[str, Any]) -> dict[str, bytes]:
        """Return numbers without trailing zeros.

        The plugin answers bools and some bits in UR's width instead of its header's.
        """
        return {name: bytes.fromhex(found[name][1]).rstrip(b"\0") for name in both}

    assert numbers(served) == numbers(plugin)
    assert served["PI_DEVICE_INFO_PARTITION_TYPE"] == [0, ""]  # of a root device


def test_enums_of_queries_cover_every_query() -> None:
    groups = {
        p.type
        for f in PI.slots
        for p in f.parameters
        if p.name == "param_name" or p.type == "pi_peer_attr"
    }
    assert groups <= set(ENUMS)
