"""Graph files whose programs would read files of this machine."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest
from helpers.drivers import Driver

import fairlead
from fairlead.graph_files.errors import GraphFileError
from fairlead.graph_files.loading import find_local_file
from fairlead.icd.drivers import platforms


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
