"""Search ranges of the strategies' own hyper-parameters for `odt-sim tune`, in Hydra's syntax.

Penalties and rates span the values tried in the papers. A strategy that is not listed has no such hyper-parameters.
"""

from collections.abc import Mapping

_ADAPTIVE = {
    "server_learning_rate": "tag(log,interval(0.003,1))",
    "tau": "tag(log,interval(0.00001,0.1))",
}

RANGES: Mapping[str, Mapping[str, str]] = {
    "afl": {"rate": "tag(log,interval(0.001,1))"},
    "apfl": {"alpha": "interval(0.1,0.9)"},
    "apple": {"relation_rate": "tag(log,interval(0.0001,0.1))", "regularization": "tag(log,interval(0.01,10))"},
    "clustered": {"mean_norm": "interval(0.1,0.9)", "similarity": "interval(0,0.4)"},
    "ditto": {"regularization": "tag(log,interval(0.01,10))"},
    "fedadagrad": _ADAPTIVE,
    "fedadam": _ADAPTIVE,
    "fedala": {"rate": "tag(log,interval(0.1,10))", "sample": "interval(0.2,1)"},
    "fedamp": {
        "sigma": "tag(log,interval(1,100))",
        "alpha": "tag(log,interval(0.01,1))",  # at most sigma
        "regularization": "tag(log,interval(0.01,10))",
    },
    "fedavg_finetune": {"max_epochs": "int(interval(1,10))"},
    "fedavgm": {"beta": "interval(0.3,0.97)", "server_learning_rate": "tag(log,interval(0.1,2))"},
    "fedbabu": {"fine_tune_epochs": "int(interval(1,10))"},
    "feddistill": {"gamma": "tag(log,interval(0.01,10))"},
    "feddbe": {"strength": "tag(log,interval(0.01,50))"},
    "feddyn": {"alpha": "tag(log,interval(0.001,1))"},
    "fedem": {"components": "int(interval(2,5))"},
    "fedfomo": {"models": "int(interval(2,20))"},
    "fedkd": {"energy_start": "interval(0.5,0.98)"},
    "fedlc": {"tau": "interval(0.1,2)"},
    "fedntd": {"beta": "tag(log,interval(0.1,10))", "temperature": "interval(0.5,4)"},
    "fedpac": {"strength": "tag(log,interval(0.01,10))", "head_epochs": "int(interval(1,10))"},
    "fedphp": {
        "strength": "tag(log,interval(0.01,3))",
        "temperature": "interval(1,4)",
        "momentum": "interval(0.5,0.95)",
        "participations": "int(interval(3,40))",
    },
    "fedproto": {"strength": "tag(log,interval(0.01,10))"},
    "fedprox": {"mu": "tag(log,interval(0.001,10))"},
    "fedrep": {"head_epochs": "int(interval(1,10))"},
    "fedyogi": _ADAPTIVE,
    "gpfl": {"magnitude": "tag(log,interval(0.0001,1))", "decay": "tag(log,interval(0.0001,1))"},
    "ifca": {"clusters": "int(interval(2,5))"},
    "knn_per": {"neighbours": "int(interval(3,30))"},
    "lora": {"rank": "int(interval(1,16))"},
    "moon": {"mu": "tag(log,interval(0.1,10))", "temperature": "interval(0.1,1)"},
    "mr_mtl": {"regularization": "tag(log,interval(0.01,10))"},
    "perfedavg": {"adaptation_rate": "tag(log,interval(0.001,0.3))"},
    "pfedhn": {"server_learning_rate": "tag(log,interval(0.1,1))"},
    "pfedme": {
        "regularization": "tag(log,interval(1,50))",
        "inner_steps": "int(interval(1,10))",
        "outer_learning_rate": "tag(log,interval(0.005,0.5))",
        "server_learning_rate": "interval(1,4)",
    },
    "reptile": {"server_learning_rate": "interval(0.1,2)", "max_epochs": "int(interval(1,10))"},
}
"""Ranges by strategy, named as its file in `conf/strategy`, then by setting."""
