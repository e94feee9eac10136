"""DPC++'s Plugin Interface (PI) up to 2024.2: its ABI, and PI served from a UR adapter."""
