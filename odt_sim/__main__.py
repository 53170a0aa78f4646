"""The command `odt-sim`, as `python -m odt_sim`."""

import sys

from odt_sim.cli.main import command

if __name__ == "__main__":
    sys.exit(command())
