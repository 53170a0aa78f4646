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
