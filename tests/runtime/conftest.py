"""The fixtures of tests/sycl_support.py: every test of a `device` runs on every driver."""

from sycl_support import *  # noqa: F403
