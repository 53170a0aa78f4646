"""The command `odt-sim`."""
