"""Live page of the runs in a folder: `odt-sim watch`."""
