"""A sweep on disk, shared by the tests of reports."""

from pathlib import Path

import pytest
from written_runs import SKILL, write_hydra, write_run

from odt_sim.persistence.run_folder import RunFolder


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with four strategies, three seeds each, and one failed job."""
    root = tmp_path_factory.mktemp("sweep")
    jobs = [(strategy, seed) for strategy in SKILL for seed in (0, 1, 2)]
    for number, (strategy, seed) in enumerate(jobs):
        write_run(root / str(number), strategy, seed)
    failed = root / str(len(jobs))
    write_hydra(failed, ["strategy=fedprox", "seed=1"])
    RunFolder(failed).write_failure("fedprox needs 'set_gradient_offset'; export the model again", ["strategy=fedprox"])
    return root
