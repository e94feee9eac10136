"""What the OpenCL specification demands of a driver: ICD protocol, core, command-buffers."""
