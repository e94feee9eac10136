"""What the DPC++ Plugin Interface (pi.h of 15.47) demands of a plugin."""
