"""What every API needs: ABI data, errors, search, libraries, tables, layers, probes, logs."""
