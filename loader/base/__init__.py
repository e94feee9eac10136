"""The common ground of every API: ABI data, errors, search, libraries, tables, layers, probes, logs."""
