"""The environment of all tests, set before any driver is loaded.

The caches of fairlead, PoCL and PyOpenCL go to a directory of the session: no test reads what another
run has left, and none writes into the user's home. The fixtures are in helpers/fixtures.py.
"""

from __future__ import annotations

import os
import tempfile

import pytest

pytest.register_assert_rewrite("helpers")
pytest_plugins = ["helpers.fixtures"]

_CACHES = tempfile.TemporaryDirectory(prefix="fairlead-tests-", ignore_cleanup_errors=True)

os.environ["XDG_CACHE_HOME"] = os.path.join(_CACHES.name, "xdg")
os.environ["POCL_CACHE_DIR"] = os.path.join(_CACHES.name, "pocl")
os.environ["PYOPENCL_NO_CACHE"] = "1"
os.makedirs(os.environ["POCL_CACHE_DIR"])
for _name in tuple(os.environ):
    if _name.startswith(
        ("OCL_ICD_", "OPENCL_", "FAIRLEAD_", "SYCL_", "ONEAPI_", "UR_")
    ) and _name not in (
        "OPENCL_HEADERS",
        "UR_PLUGINS",
        "SYCL_CLIENTS",
        "FAIRLEAD_FUZZ",
        "FAIRLEAD_FUZZ_SEED",
        "SYCL_CLIENTS_ADAPTER",
        "SYCL_CLIENTS_PLUGIN",
    ):
        del os.environ[_name]
