"""The figures of `paper.py`: quality against cost, and the trees of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from paper_claims import BUDGETS, COUNTINGS, curve, states_of, systems_of

#: Systems of the paper's own figure, and those of this library's.
SHOWN = ("CSTC", "default method", "single classifier", "Cronus", "early exit", "stage-wise regression", "CEGB lazy")


def draw_curves(results: dict, folder: Path, quality_names: dict[str, str]) -> list[Path]:
    """Quality against cost for each set and each counting."""
    import matplotlib

    matplotlib.use("Agg")
    from cstc.plotting import CostQualityDisplay

    paths = []
    for name in dict.fromkeys(key[0] for key in results):
        if not states_of(results, name):
            continue
        for counting in COUNTINGS:
            costs, qualities, names = [], [], []
            for system in systems_of(results, name):
                if system not in SHOWN:
                    continue
                quality = curve(results, name, system, counting)
                there = ~np.isnan(quality).any(axis=0)
                if there.any():
                    costs.append(np.array(BUDGETS)[there])
                    qualities.append(quality.mean(axis=0)[there])
                    names.append(system)
            display = CostQualityDisplay.from_predictions(
                costs,
                qualities,
                names,
                cost_name=f"budget, part of the whole ensemble's cost (counting: {counting})",
                quality_name=f"{name}: test {quality_names[name]}",
            )
            display.figure_.set_size_inches(7.0, 4.4)
            paths.append(folder / f"{name}-{counting}.png")
            display.figure_.savefig(paths[-1], dpi=120)
            matplotlib.pyplot.close(display.figure_)
    return paths


def draw_tree(model: Any, data: Any, folder: Path) -> None:
    """The tree with its labels, the Jaccard matrix and what is extracted by depth."""
    import matplotlib

    matplotlib.use("Agg")
    from cstc.plotting import ExtractionDisplay, JaccardDisplay, NodePredictionsDisplay, TreeDisplay

    rows = data.test
    if data.name == "quadrants":
        displays = {"tree": NodePredictionsDisplay.from_estimator(model, rows.X, rows.y)}
    else:
        displays = {
            "tree": TreeDisplay.from_estimator(model, rows.X, rows.y, counting="learner"),
            "jaccard": JaccardDisplay.from_estimator(model, rows.X, rows.y),
            "extraction": ExtractionDisplay.from_estimator(model, rows.X),
        }
    for kind, display in displays.items():
        display.figure_.savefig(folder / f"{data.name}-{kind}.png", dpi=100)
        matplotlib.pyplot.close(display.figure_)
