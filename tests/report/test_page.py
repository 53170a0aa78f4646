import re
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from itertools import product
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from rich.console import Console
from written_runs import write_run

from odt_sim.errors import FileError
from odt_sim.persistence.records import DeviceRecord
from odt_sim.persistence.run_folder import RunFolder
from odt_sim.report.comparison import compare
from odt_sim.report.description import result, settings
from odt_sim.report.notes import privacy
from odt_sim.report.page import page_html, page_path, write_report
from odt_sim.report.terminal import comparison_text

VOID = {"meta", "img", "source", "br"}


class Page(HTMLParser):
    """Check that tags nest, and collect sources, headings, rows and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.sources, self.headings, self.rows, self.text = [], [], [], 0, []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.sources += [value for name, value in attrs if name in ("src", "srcset", "href")]
        self.rows += tag == "tr"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.text.append(data)
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)


def report(paths, output=None, **options):
    output = output or page_path(paths)
    write_report(compare(paths, **options), output)
    return output


def load(path):
    text = path.read_text()
    assert text.startswith("<!doctype html>")
    return Page(text), text


def without_pictures(paths, **options):
    text = page_html(compare(paths, **options), [])
    return Page(text), text


@pytest.fixture(scope="module")
def page(sweep, tmp_path_factory):
    return load(report([sweep], tmp_path_factory.mktemp("page") / "report.html"))


def test_page_loads_nothing_from_elsewhere(page):
    parsed, text = page
    assert len(parsed.sources) == 8  # four pictures, light and dark
    assert all(source.startswith("data:image/png;base64,") for source in parsed.sources)
    assert not re.search(r"https?://|@import|url\(|<script|<link", text)


def test_page_describes_the_comparison(page):
    parsed, _ = page
    text = " ".join(parsed.text)
    assert parsed.headings[0] == "4 strategies on 20 devices"
    for fact in ("digits", "dirichlet (alpha 0.3)", "all seen", "0, 1, 2", "0.05"):
        assert fact in text
    assert "fedper has the highest mean test accuracy" in text
    assert "odt-sim run strategy=fedavg_finetune seed=2" in text
    assert "95\N{NO-BREAK SPACE}% confidence interval" in text


def test_page_has_every_device_of_every_seed(page):
    parsed, _ = page
    by_question, paired, devices = 5 * (1 + 4), 1 + 3, 4 * (1 + 3 * 20)
    assert parsed.rows == by_question + paired + devices


def test_page_names_failed_runs_and_excluded_updates(page):
    parsed, _ = page
    assert "Failed runs" in parsed.headings
    text = " ".join(parsed.text)
    assert "fedprox seed=1" in text
    assert "needs 'set_gradient_offset'" in text
    assert "Excluded updates: 3 of local (timed out: 3 of device 3)" in text


def test_best_values_are_marked(page):
    _, text = page
    served, *_ = re.findall(r"<tr><th><span[^>]*></span>fedper</th>(.*?)</tr>", text)
    assert served.startswith('<td class="best">')


def test_each_question_has_its_table(page):
    parsed, _ = page
    questions = [
        "Seen devices",
        "Paired differences from fedavg",
        "Unseen devices",
        "Cost",
        "At equal budgets",
        "Other metrics",
    ]
    assert parsed.headings[1:7] == questions
    text = " ".join(parsed.text)
    assert "The test is over seeds: each seed draws different devices" in text
    assert "Significantly (Holm-adjusted p below 0.05) better: fedper." in text


def test_unpaired_configurations_are_named_with_the_reason(tmp_path):
    for number, (name, data) in enumerate([("local", "digits"), ("fedavg", "digits"), ("fedper", "mnist")]):
        write_run(tmp_path / str(number), name, settings={"strategy": name, "data": data})
    text = " ".join(without_pictures([tmp_path])[0].text)
    nearest = "partition and fleet (fedavg data=digits: data is mnist, not digits)."
    assert f"Not paired: fedper data=mnist, no run of the reference is on the same data, {nearest}" in text
    alone = " ".join(without_pictures([tmp_path], against="fedper data=mnist")[0].text)
    assert "No configuration could be paired." in alone
    assert "data is digits, not mnist" in alone


def test_pairs_of_two_seeds_on_two_data_sets(tmp_path):
    for data, name, seed in product(("digits", "mnist"), ("fedavg", "fedper"), (0, 1)):
        settings = {"strategy": name, "data": data}
        write_run(tmp_path / f"{data}{name}{seed}", name, seed, overrides=[f"data={data}"], settings=settings)
    parsed, text = without_pictures([tmp_path])
    assert "Differences cannot be tested with fewer than 3 seeds." in " ".join(parsed.text)
    assert "<td>fedavg<small>data=mnist</small></td>" in text  # in two lines, so that number columns keep their width


@pytest.fixture
def rates(tmp_path):
    """One strategy at two learning rates: the smaller is better on test examples, the larger on validation."""
    for rate, test in (("0.01", 0.9), ("0.1", 0.8)):
        path = write_run(tmp_path / rate, "fedavg", overrides=[f"train.learning_rate={rate}"])
        summary = RunFolder(path).summary()
        validation = {"accuracy": {"devices": 16, "weighted_mean": float(rate)}}
        summary["metrics"]["accuracy"]["weighted_mean"] = test
        RunFolder(path).write_summary(replace(summary, metrics_validation=validation))
    return tmp_path


def test_selected_configuration_shows_the_number_of_candidates(rates):
    _, text = without_pictures([rates], best=True)
    assert "fedavg<small>train.learning_rate=0.1<br>chosen from 2</small>" in text
    assert "train.learning_rate=0.01" not in text


def test_headline_uses_the_configuration_selected_on_validation(rates):
    found = result(compare([rates]))
    assert "The mean test accuracy of the seen devices, weighted by test examples, is 80.0" in found


def test_single_run_gets_its_page_in_its_own_folder(tmp_path):
    path = write_run(tmp_path / "run", unseen=0, references=False, hydra=False)
    output = report([path])
    assert output == path / "report.html"
    parsed, _ = load(output)
    assert parsed.headings == [
        "fedavg on 20 devices",
        "Seen devices",
        "Cost",
        "Other metrics",
        "Test accuracy by round",
        "Test accuracy by device",
        "Results by device",
    ]
    assert {picture.name for picture in (path / "figures").iterdir()} == {"rounds.png", "distribution.png"}


def test_page_and_table_show_aggregator_and_privacy(tmp_path):
    private = {"aggregator": "differential_privacy", "aggregator.noise_multiplier": "2.0"}
    for name, recorded in (("plain", {"aggregator": "mean"}), ("private", private)):
        write_run(tmp_path / name, "fedavg", settings={"strategy": "fedavg", **recorded})
    folder = RunFolder(tmp_path / "private")
    folder.write_summary(replace(folder.summary(), privacy={"epsilon": 3.14159, "delta": 1e-5}))
    comparison = compare([tmp_path])
    assert settings(comparison)["aggregator"] == "mean, differential_privacy (noise_multiplier 2.0)"
    said = "of the server's models: fedavg aggregator=differential_privacy, epsilon 3.14 at delta 1e-05."
    assert said in " ".join(without_pictures([tmp_path])[0].text)
    assert said in comparison_text(comparison, 200).renderables[0].caption.plain
    assert "aggregator" not in settings(compare([tmp_path / "plain"]))
    folder.write_summary(replace(folder.summary(), privacy={"epsilon": None, "delta": 1e-5}))
    assert "epsilon infinite at" in privacy(compare([tmp_path]))
    promise = {"epsilon": 2.0, "delta": 1e-5, "neighbours": "one user replaced"}
    folder.write_summary(replace(folder.summary(), privacy=promise))
    assert "models (one device is one user; adjacency: one user replaced): fedavg" in privacy(compare([tmp_path]))


def test_page_and_table_name_the_attack_and_its_success(tmp_path):
    attacked = {"fleet.hostile": "[1, 3]", "attack": "backdoor", "attack.share": "0.5"}
    write_run(tmp_path / "attacked", "fedavg", settings={"strategy": "fedavg", **attacked})
    folder = RunFolder(tmp_path / "attacked")
    folder.write_summary(replace(folder.summary(), attack_success=0.25, global_attack_success=0.75, order=()))
    comparison = compare([tmp_path])
    assert settings(comparison)["hostile devices"] == "2 backdoor (share 0.5)"
    text = " ".join(without_pictures([tmp_path])[0].text)
    assert "Hostile devices, excluded from all metrics: 2 backdoor (share 0.5)." in text
    (row,) = comparison.rows
    assert (row.values["attack_success"].mean, row.values["global_attack_success"].mean) == (0.25, 0.75)
    assert "Attack success: share of test examples with the attacker's trigger" in text
    assert "25.0" in text
    assert "75.0" in text


def test_page_of_several_folders_is_in_the_current_one(tmp_path):
    assert page_path([tmp_path / "a", tmp_path / "b"]) == Path("report.html")


def test_regression_has_its_own_units(tmp_path):
    for name in ("local", "fedavg"):
        write_run(tmp_path / name, name, task="regression")
    text = " ".join(without_pictures([tmp_path])[0].text)
    assert "lowest mean test MSE" in text
    assert "accuracy" not in text


def test_user_text_is_escaped(tmp_path):
    attack = "<script>alert('&')</script>"
    for number, name in enumerate((attack, "plain")):
        write_run(tmp_path / str(number), "fedavg", overrides=[f"data.name={name}"])
    failed = tmp_path / "2"
    failed.mkdir()
    RunFolder(failed).write_failure(f"bad {attack}", [f"strategy={attack}"])
    parsed, text = without_pictures([tmp_path])
    assert "<script" not in text
    assert f"bad {attack}" in " ".join(parsed.text)


def test_failures_alone_make_a_page(tmp_path):
    RunFolder(tmp_path).write_failure("no memory", ["strategy=fedavg"])
    parsed, _ = load(report([tmp_path]))
    assert parsed.headings == ["No complete run", "Failed runs"]


@pytest.mark.slow
def test_page_is_reproducible(tmp_path):
    path = write_run(tmp_path / "run", unseen=0, references=False)
    for name in ("a", "b"):
        report([path], tmp_path / name / "page.html")
    for name in ("page.html", "comparison.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_unwritable_output_is_one_line(tmp_path):
    path = write_run(tmp_path / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"file.*: cannot write it") as caught:
        report([path], tmp_path / "file" / "report.html")
    assert "\n" not in str(caught.value)


def test_reports_name_devices_that_were_not_evaluated(tmp_path):
    path = write_run(tmp_path / "run")
    folder = RunFolder(path)
    rows = [dict(record) for record in folder.devices()]
    for device in (4, 7):
        rows[device]["not_evaluated"] = "test loss not finite"
    folder.write_devices(map(DeviceRecord.of, rows))
    _, text = without_pictures([path])
    sentence = "Not evaluated, and excluded from all means: fedavg (test loss not finite: device 4, 7)."
    assert sentence in text
    console = Console(file=StringIO(), width=100)
    console.print(comparison_text(compare([path])))
    assert sentence in " ".join(console.file.getvalue().split())


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
@pytest.mark.parametrize("value", [None, 0.5])
def test_reports_count_seen_devices_on_which_a_metric_is_undefined(tmp_path, metric, value):
    path = write_run(tmp_path / "run", devices=8, unseen=2)
    folder = RunFolder(path)
    rows = [{**record, metric: value if record.device in (2, 7) else 0.5} for record in folder.devices()]
    folder.write_devices(map(DeviceRecord.of, rows))
    line = f"Seen devices with an undefined test metric, excluded from its means: {metric}: fedavg 1 of 6."
    _, text = without_pictures([path])
    printed = comparison_text(compare([path])).renderables[0].caption.plain
    assert (line in text) is (line in printed) is (value is None)


@pytest.mark.parametrize(("strategy", "unseen", "shown"), [("local", 4, 2), ("local", 0, 0), ("fedavg", 4, 0)])
def test_page_says_that_steps_of_unseen_devices_count(tmp_path, strategy, unseen, shown):
    paths = [write_run(tmp_path / name, name, unseen=unseen) for name in ("fedper", strategy)]
    _, text = without_pictures(paths)
    assert text.count("Under local, unseen devices also train in every round") == shown


def test_command_names_the_folder_of_own_options(tmp_path):
    path = write_run(tmp_path / "run")
    sources = [{"path": "odt_sim.conf", "provider": "main"}, {"path": "/my/conf", "provider": "command-line"}]
    overrides = {"hydra": ["hydra.searchpath=[pkg://mine.conf]", "hydra.run.dir=out"]}
    content = {"hydra": {"runtime": {"choices": {}, "config_sources": sources}, "overrides": overrides}}
    OmegaConf.save(OmegaConf.create(content), path / ".hydra" / "hydra.yaml")
    _, text = without_pictures([path])
    assert (
        "<pre>odt-sim run --config-dir=/my/conf &#39;hydra.searchpath=[pkg://mine.conf]&#39; strategy=fedavg seed=0</pre>"
        in text
    )


def test_command_of_a_resumed_run_has_its_final_rounds(tmp_path):
    for seed, rounds in enumerate(("4", "6")):
        settings = {"strategy": "fedavg", "run.rounds": rounds}
        write_run(tmp_path / str(seed), seed=seed, overrides=["run.rounds=4"], rounds=4, settings=settings)
    _, text = without_pictures([tmp_path])
    assert "odt-sim run strategy=fedavg seed=0 run.rounds=4\n" in text
    assert "odt-sim run strategy=fedavg seed=1 run.rounds=6</pre>" in text
