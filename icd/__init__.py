"""fairlead.icd."""
