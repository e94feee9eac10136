"""Command-buffers of the reference adapter, recorded here and run by icd/command_buffer."""
