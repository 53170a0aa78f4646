"""The shipped configuration, with one folder per Hydra group."""
