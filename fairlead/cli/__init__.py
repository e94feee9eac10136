"""The command `fairlead`: one module for each subcommand."""
