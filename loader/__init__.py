"""fairlead.loader."""
