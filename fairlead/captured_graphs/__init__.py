"""Captured graphs: unmodified PyOpenCL code, recorded inside a block and replayed."""
