"""The figures of `paper.py`: quality against cost, and the trees of the paper."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from paper_claims import BUDGETS, COUNTINGS, curve, states_of, systems_of


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
            display.figure_.set_size_inches(9.0, 4.8)
            paths.append(folder / f"{name}-{counting}.png")
            display.figure_.savefig(paths[-1], dpi=120)
            matplotlib.pyplot.close(display.figure_)
    return paths


def tree_to_draw(models: Iterable[tuple[float, Any]], data: Any) -> Any | None:
    """Of models with their cost weights, the one of the largest weight whose tree has something to show."""
    worth = [(weight, model) for weight, model in models if has_something_to_show(model, data)]
    return max(worth, key=lambda pair: pair[0])[1] if worth else None


def has_something_to_show(model: Any, data: Any) -> bool:
    """Whether test rows pay for something, and part ways somewhere."""
    tree, X = model.model_, data.test.X
    return len(np.unique(tree.apply(X))) > 1 and bool(tree.predict_cost(X, "learner").any())


def draw_tree(model: Any, data: Any, folder: Path) -> None:
    """The tree with its labels, the Jaccard matrix and what is extracted by depth; nothing of a tree that buys nothing.

    See `tree_to_draw` for a model that has something to show.
    """
    import matplotlib

    matplotlib.use("Agg")
    from cstc.plotting import ExtractionDisplay, JaccardDisplay, NodePredictionsDisplay, TreeDisplay

    if not has_something_to_show(model, data):
        return
    rows = data.test
    if data.name == "quadrants":
        displays = {"tree": NodePredictionsDisplay.from_estimator(model, rows.X, rows.y)}
    else:
        displays = {
            "tree": TreeDisplay.from_estimator(model, rows.X, rows.y, counting="learner"),
            "jaccard": JaccardDisplay.from_estimator(model, rows.X, rows.y),
            "extraction": ExtractionDisplay.from_estimator(model, rows.X),
        }
    title = f"{data.name}, λ = {model.cost_weight / data.cost_weights([1.0])[0]:.3g}"
    for kind, display in displays.items():
        display.figure_.suptitle(title, x=0.01, ha="left", fontsize=9)
        display.figure_.savefig(folder / f"{data.name}-{kind}.png", dpi=100)
        matplotlib.pyplot.close(display.figure_)
