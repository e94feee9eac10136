"""The fixtures of tests/helpers/pi_service.py."""

from __future__ import annotations

from helpers.pi_service import adapter, pi  # noqa: F401
