"""The demo, which compares strategies over a fleet: `python experiments/compare.py [OVERRIDE ...]`."""

import sys

from odt_sim.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["run", "+experiment=demo", *sys.argv[1:]]))
