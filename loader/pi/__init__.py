"""The Plugin Interface (PI) of DPC++ up to 2024.2: its ABI, and PI served from a Unified Runtime adapter."""
