from functools import partial

import matplotlib
import nbformat
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure
from nbclient import NotebookClient
from written_runs import write_run

import odt_sim
from odt_sim.errors import ConfigurationError
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.report.comparison import compare
from odt_sim.report.devices_plot import draw_gains
from odt_sim.report.lines_plot import ROUNDS, draw_over
from odt_sim.report.pictures import _png
from odt_sim.report.style import DPI, LIGHT, on_figure

matplotlib.use("agg")
PLOTS = ("rounds", "devices", "pareto")


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    root = tmp_path_factory.mktemp("sweep")
    for name in ("local", "fedavg", "fedper"):
        write_run(root / name, name, devices=8, unseen=2, rounds=3)
    return root


@pytest.mark.parametrize("name", PLOTS)
def test_results_folders_and_comparisons_are_drawn(sweep, name):
    plot = getattr(odt_sim.plot, name)
    given = (odt_sim.Results.load(sweep), sweep, str(sweep), [sweep / "fedavg", sweep / "fedper"], compare([sweep]))
    for runs in given:
        axes = plot(runs)
        assert axes.has_data()
        assert axes.get_xlabel()


@pytest.mark.parametrize("name", PLOTS)
def test_given_axes_are_drawn_on(sweep, name):
    figure = Figure(layout="constrained")
    left, right = figure.subplots(2, 1)
    assert getattr(odt_sim.plot, name)(sweep, ax=right) is right
    assert right.has_data()
    assert not left.has_data()


def test_lines_are_the_runs(sweep):
    axes = odt_sim.plot.rounds(sweep)
    expected = [
        [100 * record["accuracy"] for record in RunFolder(sweep / name).rounds()] for name in ("fedavg", "local")
    ]
    drawn = [line.get_ydata() for line in axes.lines]
    np.testing.assert_allclose([drawn[0], drawn[2]], expected)


def test_gains_have_axes_for_each_configuration(sweep):
    titles = [axes.get_title(loc="left") for axes in odt_sim.plot.gains(sweep)]
    assert titles == ["fedavg", "fedper"]  # local is the baseline
    own = Figure().subplots(1, 2)
    drawn = odt_sim.plot.gains(sweep, ax=own)
    assert [axes.get_title(loc="left") for axes in drawn] == titles
    assert drawn[0].get_ylabel() == "gain (percentage points)"
    with pytest.raises(ConfigurationError, match="expected 2 axes, for fedavg, fedper; found 1"):
        odt_sim.plot.gains(sweep, ax=Figure().subplots())


@pytest.mark.parametrize("name", ["rounds", "gains"])
def test_plots_are_the_pictures_of_the_report(sweep, tmp_path, name):
    getattr(odt_sim.plot, name)(sweep)
    with matplotlib.rc_context(LIGHT.settings()):
        pyplot.gcf().savefig(tmp_path / "plot.png", dpi=DPI)
    comparison = compare([sweep])
    drawn = {
        "rounds": on_figure(draw_over, comparison, axis=ROUNDS),
        "gains": partial(draw_gains, comparison=comparison),
    }
    expected = _png(drawn[name], LIGHT)
    (tmp_path / "report.png").write_bytes(expected)
    ours, theirs = (pyplot.imread(tmp_path / f"{each}.png") for each in ("plot", "report"))
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).mean() < 0.01


@pytest.mark.slow
def test_notebook_shows_plots_of_every_cell(sweep, monkeypatch):
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel's own
    cells = ["import odt_sim", *[f"odt_sim.plot.{name}({str(sweep)!r})" for name in ("rounds", "devices")]]
    cells.append("import matplotlib.pyplot as plt; plt.plot([1, 2])")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=60).execute()
    shown = [[output.output_type for output in cell.outputs] for cell in notebook.cells]
    assert shown == [[], *3 * [["execute_result", "display_data"]]]


def test_what_cannot_be_drawn_is_one_line(sweep, tmp_path):
    with pytest.raises(
        ConfigurationError, match="expected one of megabytes, train_calls, hours, joules; found 'euros'"
    ):
        odt_sim.plot.pareto(sweep, cost="euros")
    with pytest.raises(ConfigurationError, match="no run recorded joules"):
        odt_sim.plot.pareto(sweep, cost="joules")
    alone = write_run(tmp_path / "alone", references=False)
    with pytest.raises(ConfigurationError, match="add a run of strategy=local"):
        odt_sim.plot.gains(alone)
    RunFolder(tmp_path / "failed").path.mkdir()
    RunFolder(tmp_path / "failed").write_failure("no memory", [])
    with pytest.raises(ConfigurationError, match="no run is complete"):
        odt_sim.plot.devices(tmp_path / "failed")
