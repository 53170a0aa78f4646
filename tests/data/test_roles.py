"""`experiments/roles.py` writes the roles of plays so that `data=shakespeare` reads them."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from odt_sim import data
from odt_sim.data.sources.published import CHARACTERS

SCRIPT = Path(__file__).parents[2] / "experiments" / "roles.py"
SPEECH = "To be, or not to be, that is the question, whether it is nobler in the mind to suffer\nso. "
PLAY = f"""HAMLET

Scene I. A room.

Ham.
{SPEECH}

Ophelia.
Good my lord, [Weeps] how does your honour?

Ham.
Well.
"""


def test_a_role_says_its_lines_in_order(tmp_path):
    (tmp_path / "hamlet.txt").write_text(PLAY)
    run = subprocess.run(
        [sys.executable, SCRIPT, tmp_path, tmp_path / "leaf", "--roles", "1"],
        capture_output=True,
        text=True,
        check=True,
    )
    said = SPEECH.strip() + "\nWell."
    assert run.stdout.startswith(f"1 roles, {len(said) - 80} examples")
    read = data.shakespeare(tmp_path / "leaf")
    assert set(read.users) == {"hamlet: Ham"}
    assert "".join(CHARACTERS[character] for character in read.x[0]) + "".join(CHARACTERS[y] for y in read.y) == said
    np.testing.assert_array_equal(read.x[1, :-1], read.x[0, 1:])
