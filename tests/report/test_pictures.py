import itertools
from dataclasses import replace
from io import BytesIO

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from written_runs import write_run

from odt_sim.persistence.records import DeviceRecord
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.report.comparison import compare
from odt_sim.report.devices_plot import draw_devices, draw_gains, gain_reference
from odt_sim.report.lines_plot import ROUNDS, draw_over, spread
from odt_sim.report.pictures import pictures
from odt_sim.report.style import DPI, LIGHT, LOCAL, PALETTE, on_figure, strokes, wrap_label


def draw(plot, *folders, **options):
    comparison = compare(folders)
    with matplotlib.rc_context(LIGHT.settings()):
        figure = Figure(dpi=DPI, layout="constrained")
        if plot is draw_gains:
            plot(figure, comparison)
        else:
            on_figure(plot, comparison, **options)(figure)
        figure.draw_without_rendering()
    return figure, comparison


def test_strategy_has_one_color_and_its_configurations_differ_in_line(tmp_path):
    for number, (name, alpha) in enumerate(itertools.product(("local", "fedavg", "fedper"), (0.1, 1.0))):
        write_run(tmp_path / str(number), name, overrides=[f"partition.alpha={alpha}"])
    styles = strokes(compare([tmp_path]).rows)
    colors = {label: stroke.color for label, stroke in styles.items()}
    assert set(colors.values()) == {LOCAL, *PALETTE[:2]}
    assert colors["fedavg partition.alpha=0.1"] == colors["fedavg partition.alpha=1.0"]
    assert len({(stroke.color, str(stroke.line)) for stroke in styles.values()}) == 6


def test_lines_are_the_mean_over_seeds(sweep):
    figure, comparison = draw(draw_over, sweep, axis=ROUNDS)
    (axes,) = figure.axes
    assert len(axes.lines) == len(comparison.rows) == len(axes.collections)
    for line, row in zip(axes.lines, comparison.rows, strict=True):
        expected = 100 * np.mean([[record["accuracy"] for record in run.rounds] for run in row.runs], axis=0)
        np.testing.assert_allclose(line.get_ydata(), expected)
        np.testing.assert_array_equal(line.get_xdata(), np.arange(1, 11))
    assert axes.get_xlabel() == "round"
    assert "%" in axes.get_ylabel()


@pytest.mark.parametrize("strategies", [4, 12])
def test_line_names_neither_overlap_nor_cover_data(tmp_path, strategies):
    for number in range(strategies):
        write_run(tmp_path / str(number), "fedavg", overrides=[f"strategy.some_hyper_parameter={number}", "a=b"])
    figure, _ = draw(draw_over, tmp_path, axis=ROUNDS)
    (axes,) = figure.axes
    plot = axes.get_window_extent()
    boxes = sorted((Text.get_window_extent(text) for text in axes.texts), key=lambda box: box.y0)
    assert len(boxes) == strategies
    assert all(box.x0 > plot.x1 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert all(below.y1 <= above.y0 + 1 for below, above in itertools.pairwise(boxes))
    assert boxes[0].y0 >= 0
    assert boxes[-1].y1 <= figure.bbox.y1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.01, 0.08))
def test_spread_labels_never_overlap(wanted, height):
    wanted = sorted(wanted)
    places = spread(wanted, [height] * len(wanted))
    assert places == sorted(places)
    assert np.all(np.diff(places) >= height - 1e-9)
    assert places[0] >= height / 2 - 1e-9
    assert places[-1] <= 1 - height / 2 + 1e-9


def test_labels_with_room_stay_where_they_are():
    assert spread([0.1, 0.5, 0.9], [0.1] * 3) == pytest.approx([0.1, 0.5, 0.9])
    assert spread([0.5, 0.5], [0.1] * 2) == pytest.approx([0.45, 0.55])
    assert spread([0.0, 1.0], [0.2] * 2) == pytest.approx([0.1, 0.9])


def test_every_device_is_a_dot(tmp_path):
    paths = [write_run(tmp_path / name, name, devices=300, unseen=30) for name in ("local", "fedper")]
    figure, comparison = draw(draw_devices, *paths)
    (axes,) = figure.axes
    dots = [collection.get_offsets() for collection in axes.collections if len(collection.get_offsets()) > 1]
    assert [len(some) for some in dots] == [270, 30, 270, 30]
    for place, (row, some) in enumerate(zip(comparison.rows, dots[::2], strict=True)):
        seen = [100 * device["accuracy"] for device in row.runs[0].devices if device["seen"]]
        np.testing.assert_allclose(some[:, 0], seen)
        assert np.all(np.abs(some[:, 1] - place) < 0.5)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["local", "fedper"]


def test_bars_are_gains_over_the_local_model(tmp_path):
    paths = [write_run(tmp_path / name, name) for name in ("local", "fedavg")]
    local, fedavg = (RunFolder(path).devices() for path in paths)
    expected = [100 * (f["accuracy"] - a["accuracy"]) for f, a in zip(fedavg, local, strict=True) if f["seen"]]
    figure, comparison = draw(draw_gains, *paths)
    (axes,) = figure.axes
    assert gain_reference(comparison) == "local"
    np.testing.assert_allclose([bar.get_height() for bar in axes.patches], sorted(expected, reverse=True))
    assert axes.get_title(loc="left") == "fedavg"
    better, worse = (sum(np.sign(gain) == sign for gain in expected) for sign in (1, -1))
    assert axes.texts[0].get_text() == f"{better} better, {16 - better - worse} equal, {worse} worse"


def test_many_devices_are_drawn_as_one_shape(tmp_path):
    paths = [write_run(tmp_path / name, name, devices=500) for name in ("local", "fedavg")]
    figure, _ = draw(draw_gains, *paths)
    (axes,) = figure.axes
    (shape,) = axes.patches
    values, edges, _ = shape.get_data()
    assert (len(values), edges[0], edges[-1]) == (496, 0, 100)
    assert np.all(np.diff(values) <= 0)


def test_colors_agree_between_pictures(tmp_path):
    for name in ("fedavg", "local", "fedper"):
        write_run(tmp_path / name, name)
    rounds, comparison = draw(draw_over, tmp_path, axis=ROUNDS)
    gain, _ = draw(draw_gains, tmp_path)
    lines = dict(
        zip((row.label for row in comparison.rows), (to_hex(x.get_color()) for x in rounds.axes[0].lines), strict=True)
    )
    panels = {axes.get_title(loc="left"): to_hex(axes.patches[0].get_facecolor()) for axes in gain.axes}
    assert panels == {name: lines[name] for name in ("fedavg", "fedper")}
    assert lines["local"] == LOCAL


def test_without_local_devices_are_compared_with_the_global_model(tmp_path):
    assert gain_reference(compare([write_run(tmp_path / "0", "fedper")])) == "global"
    assert gain_reference(compare([write_run(tmp_path / "1", "fedper", references=False)])) is None


def tick_labels(axes):
    """Return the labels of the horizontal axis, as the theme of the pictures writes them."""
    with matplotlib.rc_context(LIGHT.settings()):
        axes.figure.draw_without_rendering()
    return [tick.label1.get_text() for tick in [*axes.xaxis.get_major_ticks(), *axes.xaxis.get_minor_ticks()]]


def test_widely_spread_errors_have_a_logarithmic_axis(tmp_path):
    path = write_run(tmp_path / "0", task="regression")
    devices = RunFolder(path).devices()
    RunFolder(path).write_devices([DeviceRecord.of({**row, "mse": 10.0 ** (row.device - 10)}) for row in devices])
    figure, _ = draw(draw_devices, path)
    assert figure.axes[0].get_xscale() == "log"
    assert {"0.001", "1"} <= set(tick_labels(figure.axes[0]))
    accuracy, _ = draw(draw_devices, write_run(tmp_path / "1"))
    assert accuracy.axes[0].get_xscale() == "linear"


@pytest.mark.parametrize(
    "kind", ["regression", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("single", "one_round", "dollars"))]
)
def test_pictures_are_png_in_a_light_and_a_dark_version(tmp_path, kind):
    options = {"one_round": {"rounds": 1}, "regression": {"task": "regression"}}.get(kind, {})
    overrides = ["data.name=$x_{$"] if kind == "dollars" else []
    paths = [write_run(tmp_path / name, name, overrides=overrides, **options) for name in ("local", "fedavg")]
    if overrides:
        write_run(tmp_path / "other", "fedavg", overrides=["data.name=plain"])
    for number, path in enumerate(paths if kind == "one_round" else ()):  # with training steps
        folder = RunFolder(path)
        folder.write_summary(replace(folder.summary(), train_calls=40 + number, deploy_train_calls=2))
    drawn = pictures(compare([tmp_path] if overrides else paths[1:] if kind == "single" else paths))
    expected = ["rounds", "distribution", "gain", "pareto_megabytes", "pareto_train_calls"]
    assert [picture.name for picture in drawn] == expected[: {"single": 3, "one_round": 5}.get(kind, 4)]
    for picture in drawn:
        light, dark = (Image.open(BytesIO(content)) for content in (picture.light, picture.dark))
        assert light.format == dark.format == "PNG"
        assert light.size == dark.size
        assert light.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
        assert max(dark.convert("RGB").getpixel((0, 0))) < 64
        assert len(light.convert("RGB").getcolors(1 << 20)) > 10  # something is drawn
        assert picture.caption.endswith(".")


def test_failures_alone_have_no_pictures(tmp_path):
    RunFolder(tmp_path).write_failure("no memory", [])
    assert pictures(compare([tmp_path])) == []


def test_labels_are_wrapped():
    assert wrap_label("fedavg partition.alpha=0.1") == "fedavg\npartition.alpha=0.1"
    assert max(map(len, wrap_label("fedavg " + "x" * 70).split("\n"))) == 26


@pytest.mark.parametrize(
    ("override", "lines"),
    [
        ("train.learning_rate=0.07912", ["train.learning_rate=", "0.07912"]),
        ("train.learning_rate=1.234567e-05", ["train.learning_rate=", "1.234567e-05"]),
        ("train.learning_rate=0.791", ["train.learning_rate=0.791"]),
        ("model.build.layer2.units=-12.5", ["model.build.layer2.units=", "-12.5"]),
        ("strategy.server_learning_rate=0.25", ["strategy.server_learning_", "rate=0.25"]),
        ("data.path=/data/of/people/in.v1.25.npz", ["data.path=/data/of/people/", "in.v1.25.npz"]),
        ("model.build.units=[128,256,1024.125]", ["model.build.units=[128,", "256,1024.125]"]),
    ],
)
def test_labels_break_behind_words_and_not_in_numbers(override, lines):
    assert wrap_label(f"fedavg {override}").split("\n") == ["fedavg", *lines]
