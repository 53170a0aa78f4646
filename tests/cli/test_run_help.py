"""`odt-sim run --help`: an overview, and topics."""

import pytest

from odt_sim.cli.main import main


@pytest.fixture
def shown(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # lines are at most 110 characters long

    def shown(*arguments):
        code = main(["run", *arguments])
        return code, *capsys.readouterr()

    return shown


def test_overview_names_settings_and_options_within_a_screen_or_two(shown):
    code, text, _ = shown("--help")
    lines = text.splitlines()
    assert code == 0
    assert len(lines) < 80
    assert max(map(len, lines)) <= 110
    assert "  strategy=fedavg     afl, apfl, " in text
    assert "reproduce/school" in text
    assert "schedule.*" in text
    assert "schedule.deadline" not in text


def test_group_shows_its_settings_in_full_and_an_option_in_a_line(shown):
    _, text, _ = shown("--help", "fleet")
    assert "  fleet.schedule.deadline=null\n      synchronous, oort: seconds after which" in text
    assert "\nfleet: choose an option (default: default)\n" in text
    _, text, _ = shown("-h", "strategy")
    assert "  scaffold            FedAvg with control variates against client drift" in text
    assert "strategy.option" not in text


def test_option_shows_its_settings(shown):
    _, text, _ = shown("-m", "strategy=fedper,ditto", "--help")
    assert "strategy=fedper: FedAvg on the body" in text
    assert "  strategy.regularization=0.01\n      Factor of the proximal term" in text
    _, text, _ = shown("--help", "+experiment=phones")
    assert text.startswith("experiment=phones: ")


def test_key_shows_all_settings_that_begin_with_it(shown):
    _, text, _ = shown("--help", "fleet.schedule")
    keys = [line.split("=")[0].strip() for line in text.splitlines() if line.startswith("  fleet")]
    assert len(keys) > 10
    assert {key.rpartition(".")[0] for key in keys} == {"fleet.schedule"}
    _, text, _ = shown("--help", "strategy.mu=3")
    assert [line.split(":")[0] for line in text.splitlines() if line.startswith("strategy=")] == [
        "strategy=fedprox",
        "strategy=moon",
    ]


def test_word_finds_settings_and_options(shown):
    _, text, _ = shown("--help", "battery")
    assert "fleet.availability.floor=0.2" in text
    assert "fleet.cohort" not in text
    _, text, _ = shown("--help", "gradient")
    assert "model.gradient_offset" in text


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "helped.py").write_text(
        """from odt_sim import Strategy

class Halfway(Strategy):
    def __init__(self, share=0.5):
        \'\'\'Set the share.

        Args:
            share: Weight of the fine-tuned model.
        \'\'\'

def build(width=8):
    \'\'\'Return the model.

    Args:
        width: Units of the hidden layer.
    \'\'\'
"""
    )
    files = {
        "strategy/halfway.yaml": "# A half-way mix.\n_target_: helped.Halfway\n",
        "strategy/derived.yaml": "defaults: [fedprox]\nmu: 0.3\n",
        "model/small.yaml": "# A small model.\nname: small\nbuild: {_target_: helped.build, width: 9}\n",
    }
    for name, text in files.items():
        path = tmp_path / "my" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("given", [["--config-dir", "my"], ["-cd=my"], ["hydra.searchpath=[file://my]"]])
def test_own_options_are_shown_among_the_shipped_ones(shown, given):
    _, text, _ = shown(*given, "--help", "strategy", "model=small")
    assert "  halfway             A half-way mix.\n  head_only " in text
    assert "model=small: A small model.\n  model.build.width=9\n      Units of the hidden layer\n" in text
    _, text, _ = shown(*given, "--help", "strategy=halfway,derived")
    assert text == (
        "strategy=halfway: A half-way mix.\n  strategy.share=0.5\n      Weight of the fine-tuned model\n"
        "strategy=derived:\n  strategy.mu=0.3\n\n"
    )


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--config-dir", "yours"], "--config-dir: expected a folder of options, found no folder yours; give its path"),
        (["hydra.searchpath=[pkg://yours]"], "hydra.searchpath: found no package yours with options; check the name"),
        (["hydra.searchpath=[pkg://string]"], "hydra.searchpath: found no package string with options; check the name"),
        (["--config-dir", "my"], "strategy/bad.yaml: cannot be read: while parsing"),
    ],
)
def test_own_options_that_cannot_be_read_are_refused_in_one_line(shown, given, message):
    with open("my/strategy/bad.yaml", "w") as file:
        file.write("mu: [")
    code, _, error = shown(*given, "--help", "strategy")
    assert (code, error.count("\n")) == (1, 1)
    assert error.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        (
            "strategy=fedpr",
            "strategy=fedpr: no such option; did you mean fedper? odt-sim run --help strategy des",
        ),
        ("model=qqqqq", "model=qqqqq: no such option; choose one of arm_mlp, "),
        ("fleet.qqq", "--help fleet.qqq: no setting or option contains this; odt-sim run --help lists the groups\n"),
    ],
)
def test_unknown_topic_is_refused_in_one_line(shown, topic, message):
    code, out, error = shown("--help", topic)
    assert (code, out, error.count("\n")) == (1, "", 1)
    assert error.startswith(f"error: {message}")
