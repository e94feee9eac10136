"""OpenCL: drivers are found, probed, bound, called, captured and replayed here.

- From a manifest to a table: discovery.py, probe.py, drivers.py, repairs.py, tables.py.
- What is known of particular drivers: driver_profiles.py.
- Objects and calls: objects.py, calls.py, abi.py with opencl.abi, errors.py.
- What kernels read and write: kernel_source/.
- Recorded commands: capture/ records them, command_buffer/ runs them, native/ is the C of both.
"""
