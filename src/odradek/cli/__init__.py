"""The `odradek` command: one file a noun. Modules import their heavy parts inside the commands, so
that `odradek --help` answers at once."""
