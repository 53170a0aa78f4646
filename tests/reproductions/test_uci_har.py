"""The UCI HAR experiment: leakage of random splits and of splits by block."""

from pathlib import Path

import numpy as np
import pytest

from odt_sim.cli.commands.run import launch
from odt_sim.cli.hydra.build import federated
from odt_sim.cli.hydra.overrides import composed
from odt_sim.data.checks.leakage import find_leakage
from odt_sim.persistence.run_folder import RunFolder

HAR = Path(__file__).parents[3] / "shared" / "data" / "uci_har_raw.npz"


@pytest.mark.parametrize(("method", "examples", "leaked"), [("random", 4118, 3555), ("block", 3334, 0)])
def test_leakage_by_split_method(method: str, examples: int, leaked: int) -> None:
    if not HAR.exists():
        pytest.skip("the shared data folder has no uci_har_raw.npz")
    data = federated(composed(["+experiment=reproduce/uci_har", f"data.path={HAR}", f"split.method={method}"]))
    leakage = find_leakage(data)
    assert (data.devices, leakage.evaluated, leakage.equal, leakage.overlapping) == (30, examples, 0, leaked)


def test_ditto_keeps_the_penalty_of_the_measurement() -> None:
    assert (
        composed(["+experiment=reproduce/uci_har", "data.path=har.npz", "strategy=ditto"]).strategy.regularization == 1
    )


@pytest.mark.filterwarnings("ignore::odt_sim.data.checks.leakage.LeakageWarning")
@pytest.mark.slow
def test_sweep(tmp_path: Path) -> None:
    """Softmax regression replaces the network, and three people thirty."""
    signals = np.random.default_rng(0).normal(size=(3, 9, 64 * 31)).astype(np.float32)
    windows = np.stack([signals[who, :, at : at + 128] for who in range(3) for at in range(0, 64 * 30, 64)])
    np.savez(tmp_path / "har.npz", x=windows, y=np.arange(90) % 6, subject=np.repeat([1, 2, 3], 30))
    small = [
        "model=softmax",
        "model.build.input_shape=[9,128]",
        "model.build.classes=6",
        "run.rounds=1",
    ]
    swept = ["hydra.sweeper.params.strategy=fedavg", "hydra.sweeper.params.seed=0", f"hydra.sweep.dir={tmp_path}/sweep"]
    given = [f"data.path={tmp_path}/har.npz", "run.evaluate_every=1", *small, *swept]
    assert launch(["+experiment=reproduce/uci_har", *given]).failed == 0
    summaries = [RunFolder(tmp_path / "sweep" / str(job)).summary() for job in range(2)]
    assert [summary["settings"]["partition"].count("block") for summary in summaries] == [0, 1]
    assert [summary["devices"] for summary in summaries] == [3, 3]
