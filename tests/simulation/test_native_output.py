import os

import pytest

from odt_sim.simulation.native_output import quiet


def test_what_c_code_writes_is_dropped_for_a_while(capfd):
    os.write(2, b"before ")
    with quiet():
        os.write(2, b"within ")
    os.write(2, b"after")
    assert capfd.readouterr().err == "before after"


def test_an_error_brings_standard_error_back(capfd):
    with pytest.raises(ValueError, match="within"), quiet():
        raise ValueError("within")
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


def test_a_process_without_standard_error(capfd):
    kept = os.dup(2)
    os.close(2)
    try:
        with quiet():
            done = True
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    assert done
