"""Info queries of PI served from a Unified Runtime adapter.

PI served from Intel's adapter of 2025.3 answers queries as Intel's plugin of 2024 does.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.pi_service import Adapter, ask, give, long_words, tell, word, words
from helpers.support import RunPython

from fairlead.loader.base.errors import FairleadError
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi.abi import PI, serve
from fairlead.loader.pi.mapping import ENUMS
from fairlead.loader.ur.abi import UR


def test_only_a_table_of_ur_can_be_served_from(pi: DispatchTable) -> None:
    with pytest.raises(FairleadError, match="only be served from a Unified Runtime adapter"):
        serve(pi)


def test_platforms_of_all_adapters_come_in_one_list(adapter: Adapter, pi: DispatchTable) -> None:
    adapter.on("urAdapterGet", lambda room, out, count: give([1, 2], out, count))
    adapter.on(
        "urPlatformGet",
        lambda which, room, out, count: give([10 * which, 10 * which + 1], out, count),
    )
    count, found = ctypes.c_uint32(), (ctypes.c_uint64 * 3)()
    assert pi.piPlatformsGet(3, found, ctypes.byref(count)) == 0
    assert (count.value, list(found)) == (4, [10, 11, 20])


def test_types_that_are_ored_are_asked_for_one_by_one(adapter: Adapter, pi: DispatchTable) -> None:
    of_type = {
        "UR_DEVICE_TYPE_CPU": [5],
        "UR_DEVICE_TYPE_GPU": [6, 7],
        "UR_DEVICE_TYPE_MCA": [8],
        "UR_DEVICE_TYPE_ALL": [9],
    }

    def devices(platform: int, kind: int, room: int, out: int, count: int) -> int:
        found = of_type.get(UR.groups["ur_device_type_t"][kind])
        missing = {"UR_DEVICE_TYPE_VPU": 54}.get(
            UR.groups["ur_device_type_t"][kind], 18
        )  # UNSUPPORTED_ENUMERATION, DEVICE_NOT_FOUND
        return give(found, out, count) if found else missing

    adapter.on("urDeviceGet", devices)

    def ask_for(bits: int) -> list[int]:
        count, found = ctypes.c_uint32(), (ctypes.c_uint64 * 8)()
        assert pi.piDevicesGet(1, bits, 8, found, ctypes.byref(count)) == 0
        return list(found)[: count.value]

    assert ask_for(PI["PI_DEVICE_TYPE_CPU"] | PI["PI_DEVICE_TYPE_GPU"]) == [5, 6, 7]
    assert ask_for(PI["PI_DEVICE_TYPE_ACC"]) == [8]
    assert ask_for(PI["PI_DEVICE_TYPE_ALL"]) == [9]
    assert ask_for(PI["PI_DEVICE_TYPE_CUSTOM"]) == []
    assert pi.piDevicesGet(1, 0, 0, None, None) == PI.codes["PI_ERROR_INVALID_DEVICE_TYPE"]


@pytest.mark.parametrize(
    ("name", "asked", "data", "answer"),
    [
        ("TYPE", "TYPE", words(3), long_words(4)),  # GPU
        ("TYPE", "TYPE", words(6), long_words(8)),  # MCA: an accelerator
        ("AVAILABLE", "AVAILABLE", b"\1", words(1)),
        ("SINGLE_FP_CONFIG", "SINGLE_FP_CONFIG", words(0x32), long_words(7)),
        ("QUEUE_PROPERTIES", "QUEUE_PROPERTIES", words(0x803), long_words(3)),
        ("SUB_GROUP_SIZES_INTEL", "SUB_GROUP_SIZES_INTEL", words(4), long_words(4)),
        ("SUB_GROUP_SIZES_INTEL", "SUB_GROUP_SIZES_INTEL", words(4, 8), long_words(4, 8)),
        ("PARTITION_PROPERTIES", "SUPPORTED_PARTITIONS", words(0x1086), long_words(0x1086, 0)),
        ("PARTITION_TYPE", "PARTITION_TYPE", words(0x1086, 4), long_words(0x1086, 4, 0)),
        ("NAME", "NAME", b"made up\0", b"made up\0"),
        ("GPU_SLICES", "GPU_EU_SLICES", words(2), words(2)),
    ],
)
def test_device_infos_are_asked_for_by_ur_name_and_answered_in_pi_type(
    adapter: Adapter, pi: DispatchTable, name: str, asked: str, data: bytes, answer: bytes
) -> None:
    adapter.on("urDeviceGetInfo", tell(data))
    assert ask(pi.piDeviceGetInfo, 1, PI[f"PI_DEVICE_INFO_{name}"]) == answer
    asked_for = {call[1] for call in adapter.calls["urDeviceGetInfo"]}
    assert asked_for == {UR[f"UR_DEVICE_INFO_{asked}"]}


def test_number_may_be_cut_to_the_width_of_the_caller_but_to_no_less_than_urs(
    adapter: Adapter, pi: DispatchTable
) -> None:
    adapter.on("urDeviceGetInfo", tell(b"\1"))
    answer = ctypes.create_string_buffer(b"\7\7", 2)
    assert pi.piDeviceGetInfo(1, PI["PI_DEVICE_INFO_ATOMIC_64"], 1, answer, None) == 0
    assert answer.raw == b"\1\7"
    adapter.on("urDeviceGetInfo", tell(b"\3\0\0\0"))
    given = 1, PI["PI_DEVICE_INFO_TYPE"], 2, answer, None
    assert pi.piDeviceGetInfo(*given) == PI.codes["PI_ERROR_INVALID_VALUE"]
    assert answer.raw == b"\1\7"


def test_answer_that_is_empty_needs_no_room(adapter: Adapter, pi: DispatchTable) -> None:
    """UR refuses a place without a size, PI only if the answer does not fit."""
    adapter.on(
        "urDeviceGetInfo", lambda *came: tell(data)(*came) if came[2] or not came[3] else 35
    )  # …_ERROR_INVALID_SIZE
    size, asked = ctypes.c_size_t(9), PI["PI_EXT_ONEAPI_DEVICE_INFO_COMPONENT_DEVICES"]
    data = b""
    assert pi.piDeviceGetInfo(1, asked, 0, ctypes.byref(word()), ctypes.byref(size)) == 0
    assert size.value == 0
    data = long_words(5)
    given = 1, asked, 0, ctypes.byref(word()), None
    assert pi.piDeviceGetInfo(*given) == PI.codes["PI_ERROR_INVALID_VALUE"]


@pytest.mark.parametrize("supported", [b"\1", b"\0", None])
def test_command_buffers_are_among_the_extensions(
    adapter: Adapter, pi: DispatchTable, supported: bytes | None
) -> None:
    """DPC++ of PI looks for them there, UR has a property."""

    def answer(device: int, name: int, *came: int) -> int:
        if name == UR["UR_DEVICE_INFO_EXTENSIONS"]:
            return tell(b"cl_khr_fp64 cl_khr_fp16\0")(*came)
        return (
            44 if supported is None else tell(supported)(*came)
        )  # UR_RESULT_ERROR_UNSUPPORTED_FEATURE

    adapter.on("urDeviceGetInfo", answer)
    found = ask(pi.piDeviceGetInfo, 1, PI["PI_DEVICE_INFO_EXTENSIONS"]).rstrip(b"\0").split()
    assert found == [
        b"cl_khr_fp64",
        b"cl_khr_fp16",
        *([b"ur_exp_command_buffer"] if supported == b"\1" else []),
    ]


def test_infos_without_a_counterpart_are_refused_or_answered_without_ur(
    adapter: Adapter, pi: DispatchTable
) -> None:
    adapter.on("urDeviceGetInfo")
    given = 1, PI["PI_DEVICE_INFO_OPENCL_C_VERSION"], 0, None, None
    assert pi.piDeviceGetInfo(*given) == PI.codes["PI_ERROR_INVALID_VALUE"]
    assert pi.piDeviceGetInfo(1, 0x7777, 0, None, None) == PI.codes["PI_ERROR_INVALID_VALUE"]
    assert ask(pi.piDeviceGetInfo, 1, PI["PI_EXT_CODEPLAY_DEVICE_INFO_SUPPORTS_FUSION"]) == bytes(4)
    assert "urDeviceGetInfo" not in adapter.calls


@pytest.mark.parametrize(
    ("of", "name", "data", "answer"),
    [
        ("Event", "EVENT_INFO_COMMAND_TYPE", 0x1000, "COMMAND_TYPE_EXT_COMMAND_BUFFER"),
        ("Event", "EVENT_INFO_COMMAND_TYPE", 0x14, "COMMAND_TYPE_USER"),
        ("Event", "EVENT_INFO_COMMAND_EXECUTION_STATUS", 3, "EVENT_QUEUED"),
        ("Event", "EVENT_INFO_COMMAND_EXECUTION_STATUS", 4, -999),
        ("Platform", "EXT_PLATFORM_INFO_BACKEND", 5, "EXT_PLATFORM_BACKEND_NATIVE_CPU"),
    ],
)
def test_enumerations_that_are_answered_are_pis(
    adapter: Adapter, pi: DispatchTable, of: str, name: str, data: int, answer: str | int
) -> None:
    adapter.on(f"ur{of}GetInfo", tell(data.to_bytes(4, "little")))
    said = ask(getattr(pi, f"pi{of}GetInfo"), 1, PI[f"PI_{name}"])
    expected = PI[f"PI_{answer}"] if isinstance(answer, str) else answer
    assert int.from_bytes(said, "little", signed=True) == expected


def test_image_format_comes_back_as_it_was_given(adapter: Adapter, pi: DispatchTable) -> None:
    given_format = []

    def create(context: int, flags: int, form: int, desc: int, host: int, out: int) -> int:
        given_format.append(ctypes.string_at(form, 8))
        image = UR.get_struct("ur_image_desc_t").from_address(desc)
        assert (image.stype, image.type, image.width, image.rowPitch) == (
            1,
            UR["UR_MEM_TYPE_IMAGE3D"],
            16,
            64,
        )
        return give([0x11], out, 0)

    adapter.on("urMemImageCreate", create)
    form = PI.get_struct("pi_image_format")(
        PI["PI_IMAGE_CHANNEL_ORDER_sRGBA"], PI["PI_IMAGE_CHANNEL_TYPE_FLOAT"]
    )
    desc = PI.get_struct("pi_image_desc")(
        image_type=PI["PI_MEM_TYPE_IMAGE3D"], image_width=16, image_row_pitch=64
    )
    image = word()
    given = 1, 1, ctypes.byref(form), ctypes.byref(desc), None, ctypes.byref(image)
    assert pi.piMemImageCreate(*given) == 0
    assert (image.value, given_format) == (0x11, [b"\x0e\0\0\0\x0e\0\0\0"])
    adapter.on("urMemImageGetInfo", tell(given_format[0]))
    assert ask(pi.piMemImageGetInfo, 0x11, PI["PI_IMAGE_INFO_FORMAT"]) == bytes(form)


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
