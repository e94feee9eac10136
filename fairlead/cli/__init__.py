"""The command `fairlead`: one module a command."""
