"""The backend that runs blocks in this process and in forks of it, which exchange arrays in shared memory."""

from odt_sim.simulation.processes.backend import ProcessesBackend

__all__ = ["ProcessesBackend"]
