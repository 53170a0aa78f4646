"""Plot the growth of a round's time and memory from the output of `scale.py`.

python benchmarks/scale.py --output devices.json
python benchmarks/scale.py --devices 100000 --cohort 100 1000 10000 --turns 1 --rounds 1 --output cohort.json
python benchmarks/scale.py --devices 1000 --hidden 0 64 512 4096 --output parameters.json
python benchmarks/scaling_picture.py devices.json cohort.json parameters.json docs/images/scaling.png
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PANELS = (
    ("devices", "devices of the fleet"),
    ("cohort", "devices of a round"),
    ("parameters", "parameters of the model"),
)
CURVES = (
    ("CPU ms", "a round: CPU time, ms", "#2a6f97"),
    ("coordinator MB", "memory beside the data set, MB", "#c1666b"),
)


def panel(axes: Any, rows: list[dict[str, float]], column: str, label: str) -> None:
    """Plot the measurements of several runs against one column, with logarithmic axes."""
    for name, told, color in CURVES:
        axes.loglog([row[column] for row in rows], [row[name] for row in rows], "o-", color=color, label=told)
    axes.set_xlabel(label)
    axes.grid(alpha=0.3)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw how a round's time and memory grow.")
    parser.add_argument("figures", type=Path, nargs=len(PANELS), help="figures by devices, by cohort and by parameters")
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    figure, all_axes = plt.subplots(1, len(PANELS), figsize=(10, 3), sharey=True, layout="constrained")
    for axes, path, (column, label) in zip(all_axes, options.figures, PANELS, strict=True):
        panel(axes, json.loads(path.read_text()), column, label)
    all_axes[0].set_ylim(bottom=10)
    all_axes[0].legend(fontsize="small", loc="upper left")
    figure.savefig(options.picture, dpi=100)


if __name__ == "__main__":
    main()
