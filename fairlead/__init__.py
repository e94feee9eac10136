"""fairlead."""
