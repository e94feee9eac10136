"""The fixture of tests/helpers/doctor.py."""

from __future__ import annotations

from helpers.doctor import machine  # noqa: F401
