import os

import pytest

from odt_sim.device.engines import quiet


def test_output_of_native_code_is_dropped(capfd):
    os.write(2, b"before ")
    with quiet():
        os.write(2, b"within ")
    os.write(2, b"after")
    assert capfd.readouterr().err == "before after"


def test_error_restores_standard_error(capfd):
    with pytest.raises(ValueError, match="within"), quiet():
        raise ValueError("within")
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


def test_closed_standard_error_is_accepted(capfd):
    kept = os.dup(2)
    os.close(2)
    try:
        with quiet():
            done = True
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    assert done
