"""Command-buffers of Unified Runtime, recorded in regular command lists of Level Zero."""
