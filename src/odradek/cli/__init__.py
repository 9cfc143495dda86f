"""The `odradek` command, with one module for each noun.

The modules import large packages inside the commands, which keeps `odradek --help` fast.
"""
