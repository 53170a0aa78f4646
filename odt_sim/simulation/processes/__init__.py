"""The backend that runs blocks in this process and its forks, which exchange arrays through shared memory."""

from odt_sim.simulation.processes.backend import ProcessesBackend

__all__ = ["ProcessesBackend"]
