"""The fixtures of tests/helpers/validated.py."""

from __future__ import annotations

from helpers.validated import adapter, attach, the_adapter  # noqa: F401
