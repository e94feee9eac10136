"""The conformance suite for Level Zero drivers. ../README.md explains how cases are written."""
