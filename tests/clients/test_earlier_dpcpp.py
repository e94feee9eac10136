"""Our adapters under libsycl.so.8 of DPC++ 2025.3, whose loader has other tables than that of
today.

Nothing is set for it: an adapter looks at what its loader exports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from helpers.clients import DEVICE_PROGRAMS, HERE, ZE_VARIABLES, Compiler, on, printed

from fairlead import plugins

pytestmark = [pytest.mark.thorough, pytest.mark.parametrize("driver", on("intel_cpu"))]

ADAPTERS: Final = {"opencl": plugins.reference_adapter, "level_zero": plugins.level_zero_adapter}


@pytest.mark.parametrize("find_adapter", ADAPTERS.values(), ids=ADAPTERS)
@pytest.mark.parametrize("program", DEVICE_PROGRAMS)
def test_it_prints_what_it_says(
    program: str,
    find_adapter: Callable[[], str],
    driver: str,
    compile_then: Compiler,
    drivers: dict[str, str],
) -> None:
    variables = ZE_VARIABLES.get(program, {})
    output = compile_then.run_device([program], drivers[driver], find_adapter(), **variables)
    source = HERE / f"device/{program}.cpp"
    assert (output.out, output.err, output.code) == (printed(source), "", 0)
