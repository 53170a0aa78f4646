"""The configuration that is shipped: one folder for each Hydra group."""
