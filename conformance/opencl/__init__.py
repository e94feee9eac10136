"""What the OpenCL specification demands of a driver: the ICD protocol, the core that fairlead needs, and command-buffers."""
