"""Runs a fleet: cohorts, blocks, backends, and the coordinator that commits round by round."""
