"""From command line and configuration to the objects of a run."""
