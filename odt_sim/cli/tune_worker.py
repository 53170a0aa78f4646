"""A process of `odt-sim tune`: runs the command `odt-sim`, and ends when its parent ends.

The first argument is the parent's process id; the others are the command's arguments.
"""

import sys

from odt_sim._support.system import end_with_parent
from odt_sim.cli.main import command

if __name__ == "__main__":
    end_with_parent(int(sys.argv.pop(1)))
    sys.exit(command())
