"""Adapters written in Python and built as drop-in shared libraries; the reference adapter over OpenCL will be `opencl`."""
