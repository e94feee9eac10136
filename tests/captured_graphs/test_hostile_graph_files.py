"""Graph files that are damaged or hostile: each is refused with a sentence. None needs a driver.

Graph files whose programs would read files of this machine, or whose launches do not suit their
kernels.
"""

from __future__ import annotations

import copy
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers.drivers import Driver
from hypothesis import given, settings
from hypothesis import strategies as st

import fairlead
from fairlead.graph_files.archive import MOST_JSON, GraphArchive, write
from fairlead.graph_files.checks import check_document
from fairlead.graph_files.document import Document
from fairlead.graph_files.errors import GraphFileError
from fairlead.graph_files.loading import find_local_file
from fairlead.icd.drivers import platforms

SOUND: dict[str, Any] = {
    "format": "fairlead graph",
    "version": 1,
    "device": {"device": "d", "driver": "1"},
    "contents": "inputs",
    "programs": [{"options": "", "source": "programs/0.cl"}],
    "kernels": [
        {
            "program": 0,
            "name": "f",
            "arguments": [{"type": "float*", "name": "x", "constant": False}],
        }
    ],
    "memory": [
        {
            "kind": "buffer",
            "size": 64,
            "flags": ["read_write"],
            "name": "x",
            "dtype": "<f4",
            "shape": [16],
            "contents": "contents/0.npy",
            "result": "result/0.npy",
        },
        {"kind": "sub_buffer", "size": 32, "flags": [], "of": 0, "offset": 32},
        {"kind": "host", "size": 64},
        {
            "kind": "image",
            "size": 64,
            "flags": [],
            "type": "image2d",
            "order": "RGBA",
            "channel_type": "UNORM_INT8",
            "element_size": 4,
            "extent": [4, 4, 1],
        },
        {"kind": "svm", "size": 64, "flags": ["read_write"]},
        {"kind": "buffer", "size": 32, "flags": []},
    ],
    "samplers": [{"normalized": False, "addressing": "NONE", "filter": "NEAREST"}],
    "parameters": [
        {"name": "dt", "dtype": "<f4", "value": "0000803f"},
        {"from": 0, "steps": [["*", {"python": "int", "dtype": "<i8", "value": "02" * 8}, True]]},
        {"name": "u", "memory": 1, "is_array": False},
    ],
    "swaps": [[1, 5]],
    "inputs": {"x": 0},
    "outputs": {"x": 0},
    "commands": [
        {
            "op": "kernel",
            "kernel": 0,
            "global": [16],
            "local": [4],
            "args": [
                {"memory": 0},
                {"value": "00"},
                {"local": 16},
                {"sampler": 0},
                {"parameter": 1},
                {"memory": 4, "start": 32},
            ],
            "after": [],
        },
        {"op": "marker", "after": [0]},
        {
            "op": "read",
            "source": {"parameter": 2},
            "target": 2,
            "offset": 0,
            "size": 32,
            "after": [1],
        },
        {
            "op": "copy_rect",
            "source": 0,
            "target": 1,
            "source_origin": [0, 0, 0],
            "target_origin": [0, 0, 0],
            "region": [4, 2, 1],
            "source_row_pitch": 8,
            "source_slice_pitch": 0,
            "target_row_pitch": 16,
            "target_slice_pitch": 0,
            "after": [],
        },
        {
            "op": "write_image",
            "source": 2,
            "target": 3,
            "origin": [0, 0, 0],
            "region": [4, 4, 1],
            "row_pitch": 0,
            "slice_pitch": 0,
            "after": [],
        },
        {"op": "fill", "target": 0, "pattern": "00", "offset": 0, "size": 64, "after": []},
    ],
}


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def members(value: Any = SOUND) -> dict[str, bytes]:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return {
        "graph.json": text,
        "programs/0.cl": b"kernel void f(global float *x) {}",
        "contents/0.npy": npy(np.zeros(16, np.float32)),
        "result/0.npy": npy(np.ones(16, np.float32)),
    }


def written(path: Path, parts: dict[str, bytes], packed: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", packed) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


def read(path: Path) -> None:
    """Read all of a file, as `load` does."""
    with GraphArchive(path) as archive:
        for name in archive.document.list_members():
            if name.startswith("programs/"):
                archive.read_program(name)
        for one in archive.document.memory:
            archive.read_contents(one)
        archive.read_results()


def refusal(path: Path) -> GraphFileError:
    with pytest.raises(GraphFileError) as raised:
        read(path)
    error = raised.value
    assert error.routine == "load" and error.code and error.remedy and len(str(error)) < 700
    return error


def test_the_sound_file_is_read(tmp_path: Path) -> None:
    read(written(tmp_path / "x", members()))


@pytest.mark.parametrize("place", [3, None, b"step.flg", io.StringIO()])
def test_what_is_no_path_and_no_binary_stream_is_refused(place: Any) -> None:
    with pytest.raises(GraphFileError, match="neither a path nor a binary stream") as raised:
        GraphArchive(place)
    assert raised.value.code == "CANNOT_READ"
    with pytest.raises(GraphFileError, match="neither a path nor a binary stream") as raised:
        write(place, Document(device={}), {})
    assert raised.value.code == "CANNOT_SAVE"


def test_a_new_file_has_the_rights_of_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The umask is not changed for that: other threads may create files meanwhile."""
    (tmp_path / "other").touch()
    monkeypatch.delattr(os, "umask")
    write(tmp_path / "x.flg", Document(device={}), {})
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1 and len(list(tmp_path.iterdir())) == 2


#: Where a sound document is changed, to what, and a word of the refusal.
CHANGES: list[tuple[str, Any, str]] = [
    ("version", 2, "install a newer fairlead"),
    ("version", "1", "version is '1'"),
    ("format", "x", "not a graph of fairlead"),
    ("contents", "some", "one of none, inputs, all"),
    ("commands", {}, "not a list"),
    ("programs/0/options", 3, "not text"),
    ("programs/0/options", "-DX=\ud800", "not text"),
    ("programs/0/source", "../../etc/passwd", "not a member"),
    ("programs/0/source", "programs/7.cl", "has no programs/7.cl"),
    ("programs/0/code", "import os", "unknown member"),
    ("kernels/0/program", 5, "there are 1"),
    ("kernels/0/name", "f; rm", "not a name"),
    ("memory/0/size", -1, "not a size"),
    ("memory/0/size", 1 << 80, "25 digits"),
    ("memory/0/size", 1.5, "not a size"),
    ("memory/0/size", True, "not a size"),
    ("memory/0/size", 32, "larger than its size"),
    ("memory/0/dtype", "O", "not a type"),
    ("memory/0/dtype", "<f3", "not a type"),
    ("memory/0/shape", [1 << 62, 1 << 62], "larger than its size"),
    ("memory/0/kind", "usm", "one of buffer"),
    ("memory/0/kind", [], "one of buffer"),
    ("memory/0/result", "../result.npy", "not a member"),
    ("memory/0/result", "result/7.npy", "has no result/7.npy"),
    ("memory/0/result", ["result/0.npy"], "not a member"),
    ("memory/1/of", 1, "there are 1"),
    ("memory/1/of", 4, "there are 1"),
    ("memory/1/offset", 64, "does not lie within"),
    ("memory/3/extent", [4, 0, 1], "not an extent"),
    ("memory/3/extent", [1 << 40, 1, 1], "not an extent"),
    ("memory/3/element_size", 16, "not that of its extent"),
    ("parameters/0/value", "00", "not the size"),
    ("parameters/1/from", 1, "there are 1"),
    ("parameters/1/from", 2, "there are 1"),
    ("parameters/1/steps", [["eval", "1", True]], "not a list of steps"),
    ("parameters/1/steps", [["*", {"python": "exec"}, True]], "not a list of steps"),
    ("parameters/2/memory", 2, "not a buffer"),
    ("parameters/2/name", "dt", "the same name"),
    ("swaps/0", [0], "not a pair"),
    ("swaps/0", [0, 0], "not a pair"),
    ("swaps/0", [0, 1], "not a pair of buffers of the same size"),
    ("swaps", [[1, 5], [5, 1]], "a buffer of another pair"),
    ("inputs", {"a b": 0}, "not a name"),
    ("outputs/x", 9, "there are 6"),
    ("commands/0/op", "spawn", "not a command that this version knows"),
    ("commands/0/after", [0], "a cycle"),
    ("commands/1/after", [5], "a cycle"),
    ("commands/0/global", [], "not a range"),
    ("commands/0/global", [1, 1, 1, 1], "not a range"),
    ("commands/0/local", [1, 1], "dimensions"),
    ("commands/0/args/0", {"memory": 2}, "not memory that a kernel can use"),
    ("commands/0/args/0", {"memory": 0, "start": 4}, "has no address"),
    ("commands/0/args/1", {"value": "0"}, "not a value"),
    ("commands/0/args/1", {"value": "00", "local": 1}, "unknown member"),
    ("commands/0/args/1", {"null": True}, "not an argument"),
    ("commands/0/args/1", {"memory": False}, "not a whole number"),  # equal to {"memory": 0}
    ("commands/0/args/4", {"parameter": 1.0}, "not a whole number"),
    ("commands/0/args/5/start", 64, "not memory that a kernel can use"),
    ("commands/2/size", 33, "leads out"),
    ("commands/2/offset", 1, "leads out"),
    ("commands/2/target", 0, "buffer memory, and not host memory"),
    ("commands/2/source/parameter", 0, "None"),
    ("commands/2/target_start", 40, "leads out of its target"),
    ("commands/3/region", [4, 0, 1], "not three numbers"),
    ("commands/3/target_row_pitch", 1 << 62, "leads out of its target"),
    ("commands/4/region", [4, 5, 1], "leads out"),
    ("commands/4/origin", [1, 0, 0], "leads out of its image"),
    ("commands/4/row_pitch", 1000, "leads out of its source"),
    ("commands/5/pattern", "", "has 0 bytes"),
    ("commands/5/target", {"parameter": 0}, "None"),
]


def changed(place: str, value: Any) -> Any:
    document: Any = copy.deepcopy(SOUND)
    *way, last = [int(part) if part.isdecimal() else part for part in place.split("/")]
    inner = document
    for part in way:
        inner = inner[part]
    inner[last] = value
    return document


@pytest.mark.parametrize(("place", "value", "word"), CHANGES)
def test_what_breaks_a_rule_is_refused(tmp_path: Path, place: str, value: Any, word: str) -> None:
    error = refusal(written(tmp_path / "x", members(changed(place, value))))
    assert word in str(error)
    assert error.code == (
        "NEWER_VERSION" if (place, value) == ("version", 2) else "INVALID_GRAPH_FILE"
    )


def _bomb(path: Path) -> None:
    """A graph.json that is larger than it may be, although the file is small."""
    written(path, members(b" " * (MOST_JSON + 1)))


def _lying(path: Path) -> None:
    """An archive whose directory says that a member is smaller than it is."""
    written(path, members())
    data = path.read_bytes()
    real = len(members()["graph.json"]).to_bytes(4, "little")
    assert data.count(real) == 2
    path.write_bytes(data.replace(real, (100).to_bytes(4, "little")))


def _twice(path: Path) -> None:
    written(path, members())
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("graph.json", "{}")


ARCHIVES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no zip": (lambda path: path.write_bytes(b"hello"), "not a zip file"),
    "empty": (lambda path: path.write_bytes(b""), "not a zip file"),
    "missing": (lambda path: None, "cannot be read: No such file"),
    "a folder": (lambda path: path.mkdir(), "cannot be read: Is a directory"),
    "no graph": (lambda path: written(path, {"a": b""}), "without graph.json"),
    "bomb": (_bomb, "are the most"),
    "lying": (_lying, "damaged|not the size"),
    "twice": (_twice, "twice"),
    "leads out": (lambda path: written(path, {**members(), "../x": b""}), "leads out of the"),
    "absolute": (lambda path: written(path, {**members(), "/x": b""}), "leads out of the"),
    "packed": (
        lambda path: written(path, members(), zipfile.ZIP_LZMA),
        "packed by an unknown method",
    ),
    "no json": (lambda path: written(path, members(b"{")), "damaged"),
    "no text": (lambda path: written(path, members(b"\xff\xfe")), "damaged"),
    "deep": (lambda path: written(path, members(b"[" * 200_000)), "damaged"),
    "digits": (lambda path: written(path, members(b"9" * 100_000)), "100000 digits"),
    "nan": (lambda path: written(path, members(b"NaN")), "not a number of JSON"),
    "a list": (lambda path: written(path, members([])), "not a graph of fairlead"),
    "pickle": (
        lambda path: written(
            path, {**members(), "contents/0.npy": npy(np.array([print], dtype=object))}
        ),
        "not the 64 bytes",
    ),
    "other size": (
        lambda path: written(path, {**members(), "contents/0.npy": npy(np.zeros(15, "<f4"))}),
        "not the 64 bytes",
    ),
    "large contents": (
        lambda path: written(path, {**members(), "contents/0.npy": bytes(1 << 20)}),
        "are the most",
    ),
    "short result": (
        lambda path: written(path, {**members(), "result/0.npy": npy(np.zeros(15, "<f4"))}),
        "has not the 64 bytes",
    ),
    "no npy": (
        lambda path: written(path, {**members(), "contents/0.npy": b"x"}),
        "not a .npy file",
    ),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives_that_are_no_graphs(tmp_path: Path, name: str) -> None:
    make, word = ARCHIVES[name]
    path = tmp_path / "x"
    make(path)
    error = refusal(path)
    assert any(part in str(error) for part in word.split("|")), error


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = written(tmp_path / "x", members()).read_bytes()
    for length in range(0, len(whole), 37):
        (tmp_path / "x").write_bytes(whole[:length])
        refusal(tmp_path / "x")


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.sampled_from(["", "..", "<f4", "|O", "buffer", "kernel", "programs/0.cl", "\0", "é"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["memory", "parameter", "op", "value", "of"]), inner)
    ),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value of a document."""
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    return [path, *(way for key, one in inner for way in places(one, (*path, key)))][
        bool(not path) :
    ]


PLACES = places(SOUND)


@pytest.mark.fuzz
@settings(deadline=None, max_examples=400)
@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES | st.just(...)), min_size=1, max_size=4))
def test_a_document_with_random_changes_is_read_or_refused(changes: list[Any]) -> None:
    document: Any = copy.deepcopy(SOUND)
    for way, value in changes:
        inner = document
        try:
            for part in way[:-1]:
                inner = inner[part]
            if value is ...:
                del inner[way[-1]]
            else:
                inner[way[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
    try:
        made = check_document(document)
    except GraphFileError as error:
        assert error.code and error.remedy
    else:
        assert made.to_json() == document


@pytest.mark.fuzz
@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_file_with_random_bytes_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x"
    data = bytearray(written(path, members()).read_bytes())
    for place, byte in changes:
        data[place % len(data)] = byte
    path.write_bytes(data)
    try:
        read(path)
    except GraphFileError as error:
        assert error.code and error.remedy


@pytest.mark.parametrize(
    "source",
    [
        '#include "/etc/passwd"',
        "# /* x\ny */ include </etc/passwd>",
        "%:include NAME",
        "??=include NAME",
        '#in\\\nclude "x"',
        '#in\\ \t\r\nclude "x"',
        '#in??/\nclude "x"',
        '#include_next "x"',
        '#import "x"',
        '#embed "x"',
        "#if __has_include(<x>)",
        "#ifdef __has_embed",
        'constant char *s = "/*";\n#include "x"\n//*/',
        'void f() { __asm__(".incbin x"); }',
        '#include "pyopencl-complex.h"',
        "#include <pyopencl-../../x.h>",
        "#include <pyopencl-complex.h>\n#include <x.h>",
    ],
)
def test_what_reads_files_is_found(source: str) -> None:
    assert find_local_file(source, "")


@pytest.mark.parametrize(
    "options",
    ["-I /etc", "-I/etc", "-include x", "-DX=1 -I.", '-DX="a -I/etc"', "@file", "-Wp,-I/etc", "x",
     "-D -I/etc", "-fplugin=x", "-D X -isystem /x"],
)  # fmt: skip
def test_options_that_read_files_are_found(options: str) -> None:
    assert find_local_file("", options)


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("", ""),
        ("kernel void f() { int include = 1, import = 2; } // includes", ""),
        ("#include <pyopencl-complex.h>\n#include <pyopencl-random123/philox.cl>", "-w"),
        ("#define f(x) #x\n#pragma unroll", "-DX=(1+2) -D Y -cl-std=CL1.2 -cl-fast-relaxed-math"),
        ("", "-O3 -g -Werror -UX -cl-nv-verbose"),
    ],
)
def test_other_programs_read_none(source: str, options: str) -> None:
    assert find_local_file(source, options) == ""


@pytest.mark.one_driver
def test_a_stream_may_not_read_files_and_a_path_may(each_driver: Driver, tmp_path: Path) -> None:
    platform = next(one for one in platforms() if each_driver.has(one))
    device = platform.devices[0].to_pyopencl()
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    (tmp_path / "number.h").write_text("#define NUMBER 7\n", encoding="utf-8")
    source = '#include "number.h"\nkernel void put(global int *x) { x[0] = NUMBER; }'
    program = cl.Program(context, source).build([f"-I{tmp_path}"])
    x = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
    with fairlead.capture(queue) as graph:
        program.put(queue, (1,), None, x)
    file = tmp_path / "step.flg"
    graph.save(file, names={"x": x})
    for place, options in ((io.BytesIO(file.read_bytes()), {}), (file, {"local_files": False})):
        with pytest.raises(GraphFileError, match="may read files") as refused:
            fairlead.load(place, device, **options)
        assert "local_files=True" in refused.value.remedy
    for place in (file, io.BytesIO(file.read_bytes())):
        loaded = fairlead.load(place, device, local_files=True)
        found = loaded.finalize()()
        assert np.frombuffer(found["x"].tobytes(), np.int32)[0] == 7


@pytest.mark.parametrize(
    ("index", "argument"),
    [
        (0, {"value": "6745230100000000"}),  # bytes for memory, which PoCL would follow
        (0, {"sampler": 0}),
        (0, {"local": 16}),
        (1, {"memory": 0}),
        (2, {"memory": 0}),
        (2, {"value": "6745230100000000"}),
        (3, {"sampler": 0}),
        (4, {"memory": 0}),
    ],
)
@pytest.mark.one_driver
def test_an_argument_of_another_kind_than_declared_is_refused(
    each_driver: Driver, tmp_path: Path, index: int, argument: dict[str, Any]
) -> None:
    platform = next(one for one in platforms() if each_driver.has(one))
    device = platform.devices[0].to_pyopencl()
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    declared = "global int *x, int y, sampler_t s, read_only image2d_t i, local int *l"
    source = f"kernel void f({declared}) {{ x[0] = y; }}"
    # without it PoCL tells pointers from the rest, no samplers from images
    options = ["-cl-kernel-arg-info"] if index in (2, 3) else []
    f: Any = cl.Program(context, source).build(options).f
    x = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
    image_format = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
    image = cl.create_image(context, cl.mem_flags.READ_WRITE, image_format, shape=(4, 4))
    sampler = cl.Sampler(context, False, cl.addressing_mode.CLAMP, cl.filter_mode.NEAREST)
    with fairlead.capture(queue) as graph:
        f(queue, (1,), None, x, np.int32(7), sampler, image, cl.LocalMemory(4))
    whole = io.BytesIO()
    graph.save(whole)
    with zipfile.ZipFile(whole) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(parts["graph.json"])
    document["commands"][0]["args"][index] = argument
    parts["graph.json"] = json.dumps(document).encode()
    path = written(tmp_path / "changed.flg", parts)
    with pytest.raises(GraphFileError, match=f"argument {index}"):
        fairlead.load(path, device)
