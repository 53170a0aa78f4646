"""Run a pickled simulation in a process that joins a cluster: `python driver.py FILE`."""

import sys
from pathlib import Path

from ray import cloudpickle

from odt_sim import OdtSimError, Simulation
from odt_sim.simulation.run import cohort

settings = cloudpickle.loads(Path(sys.argv[1]).read_bytes())
cohort.FEWEST_BLOCKS = settings.pop("fewest_blocks")
try:
    Simulation(**settings).run()
except OdtSimError as error:
    sys.exit(f"error: {error}")
