"""Plot updates per second by workload and simulator from the output of `peers.py`.

python benchmarks/peers.py --with ... --output peers.jsonl
python benchmarks/peers_picture.py peers.jsonl docs/images/peers.png
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from peers.workloads import WORKLOADS

OWN, OTHERS = "#2a6f97", "#b8c4cc"


def panel(axes: Any, lines: list[dict[str, Any]], title: str) -> None:
    """Draw a bar for the median of each simulator, with error bars for the quartiles, and its value as a label."""
    names = list(dict.fromkeys(line["simulator"] for line in lines))
    rates = [[line["updates_per_second"] for line in lines if line["simulator"] == name] for name in names]
    low, median, high = np.array([np.quantile(own, [0.25, 0.5, 0.75]) for own in rates]).T
    colors = [OWN if name.startswith("odt_sim") else OTHERS for name in names]
    bars = axes.barh(names, median, color=colors, xerr=(median - low, high - median), ecolor="#444444", capsize=2)
    axes.bar_label(
        bars, [f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}" for rate in median], padding=5, fontsize="small"
    )
    axes.set_title(title, fontsize="medium")
    axes.set_xlim(0, 1.15 * high.max())
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw updates a second by workload and simulator.")
    parser.add_argument("figures", type=Path, help="the output of peers.py")
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.figures.read_text().splitlines()]
    drawn = {name: own for name in WORKLOADS if (own := [line for line in lines if line["workload"] == name])}
    figure, all_axes = plt.subplots(
        2, -(-len(drawn) // 2), figsize=(10, 5.5), sharey=True, layout="constrained", squeeze=False
    )
    for axes, (name, own) in zip(all_axes.flat, drawn.items(), strict=False):
        panel(axes, own, WORKLOADS[name].title)
    all_axes[0, 0].invert_yaxis()  # shared by all axes
    for axes in all_axes[-1]:
        axes.set_xlabel("updates a second (median and quartiles)")
    figure.savefig(options.picture, dpi=100)


if __name__ == "__main__":
    main()
