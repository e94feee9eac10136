"""fairlead.graph."""
