"""Let YAML be parsed by libyaml, which takes a tenth of the time of PyYAML's Python code."""

import yaml  # type: ignore[import-untyped]


def use_libyaml() -> None:
    """Replace PyYAML's safe loader by libyaml's, from which OmegaConf, and with it Hydra, derives its own loader.

    Both give the same values and the same types of errors. PyYAML's wheels contain libyaml; other builds may lack it.
    """
    yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
