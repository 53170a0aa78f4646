"""How a command reads the configuration's files."""

import yaml
from omegaconf import OmegaConf
from omegaconf._utils import get_yaml_loader

from odt_sim.cli.hydra.settings import use_libyaml


def test_libyaml_reads_the_values_of_pyyaml(tmp_path):
    values = "[1, 1e-3, .inf, null, yes, 'x: y', ~, 2020-01-01, 0x1f, 1_000]"
    text = f'a: {values}\nb: {{Köln: "\\u00e9 😀"}}\nc: |\n  two\n  lines\n'
    use_libyaml()
    if yaml.__with_libyaml__:
        assert issubclass(get_yaml_loader(), yaml.CSafeLoader)
    (tmp_path / "a.yaml").write_text(text)
    before = yaml.load(text, Loader=yaml.loader.SafeLoader)
    assert yaml.safe_load(text) == before
    assert OmegaConf.load(tmp_path / "a.yaml").a[1] == 0.001
    assert {**OmegaConf.load(tmp_path / "a.yaml"), "a": 0} == {**before, "a": 0}


def test_damaged_option_is_one_line(run, folder):
    (folder / "own" / "strategy").mkdir(parents=True)
    (folder / "own" / "strategy" / "bad.yaml").write_text("a: [1\nb: }")
    code, err = run("--config-dir=own", "strategy=bad")
    assert code == 1
    assert err.count("\n") == 1
    assert "bad.yaml" in err


def test_report_reads_runs_by_libyaml(odt_sim, folder, monkeypatch):
    monkeypatch.setattr(yaml, "SafeLoader", yaml.loader.SafeLoader)
    assert odt_sim("report", "nothing")[0] == 1
    assert yaml.SafeLoader is getattr(yaml, "CSafeLoader", yaml.loader.SafeLoader)
