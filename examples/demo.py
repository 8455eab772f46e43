"""What `make demo` runs first: quality against cost on two data sets, a table, and a picture (about a minute).

    python examples/demo.py            both data sets, mean of three splits
    python examples/demo.py --quick    one split, fewer settings, for a first look or a test

The prices are illustrations in arbitrary units.  Cost is what serving pays: each item once per input, and only on
the branches that the input takes (counting="branch"), for the trees of classifiers and for the boosted trees alike.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import lightgbm
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import train_test_split

from cstc import CostModel, CSTCClassifier, CSTCRegressor, Frontier, from_lightgbm
from cstc.datasets import load_diabetes_with_costs


class Task(NamedTuple):
    title: str
    X: np.ndarray
    y: np.ndarray
    costs: CostModel
    estimator: type
    quality_name: str
    cost_weights: tuple[float, ...]

    @property
    def is_classes(self) -> bool:
        return self.estimator is CSTCClassifier


def diabetes() -> Task:
    X, y, names, costs = load_diabetes_with_costs()
    return Task(
        "Diabetes: predict the progression after a year",
        X,
        y,
        for_plain_columns(names, costs),
        CSTCRegressor,
        "R²",
        (5.0, 20.0, 40.0, 80.0, 300.0),
    )


def breast_cancer() -> Task:
    """Thirty features from ten measurements: mean, error and worst of each come in one go.

    Compactness is computed from perimeter and area, so it costs nothing beyond those two.
    """
    data = load_breast_cancer()
    names = [str(name) for name in data.feature_names]
    prices = {"radius": 1, "texture": 2, "perimeter": 1, "area": 1, "smoothness": 3, "concavity": 4}
    prices |= {"concave points": 4, "symmetry": 3, "fractal dimension": 6}
    measured = {name: name.replace("mean ", "").replace("worst ", "").replace(" error", "") for name in names}
    requires = {
        name: ["perimeter", "area"] if measurement == "compactness" else [measurement]
        for name, measurement in measured.items()
    }
    return Task(
        "Breast cancer: malignant or benign",
        data.data,
        np.array(data.target_names)[data.target],
        for_plain_columns(names, CostModel(prices, requires)),
        CSTCClassifier,
        "accuracy",
        (0.0003, 0.001, 0.003, 0.01, 0.03),
    )


def for_plain_columns(names: list[str], costs: CostModel) -> CostModel:
    """The same bill for a matrix without column names, whose columns are called x0, x1, ...

    (With a pandas or polars table, `costs` works as it is.)
    """
    own = [[name] if name in costs.prices else [] for name in names]
    return CostModel(costs.prices, {f"x{j}": [*costs.requires.get(n, ()), *own[j]] for j, n in enumerate(names)})


class Point(NamedTuple):
    cost: float
    p95: float
    quality: float
    nodes: float


def split(task: Task, random_state: int):
    """Training, validation and test rows: half, a fifth, three tenths."""
    stratify = task.y if task.is_classes else None
    rest, test = train_test_split(np.arange(len(task.y)), test_size=0.3, random_state=random_state, stratify=stratify)
    stratify = task.y[rest] if stratify is not None else None
    train, validation = train_test_split(rest, test_size=0.2 / 0.7, random_state=random_state, stratify=stratify)
    return [(task.X[rows], task.y[rows]) for rows in (train, validation, test)]


def fit_trees(task: Task, data, random_state: int) -> dict[float, tuple[Point, Any]]:
    """A tree for each cost_weight; a frontier grows what they share only once."""
    (X, y), (X_val, y_val), (X_test, y_test) = data
    estimator = task.estimator(costs=task.costs, random_state=random_state, n_jobs=1)
    frontier = Frontier(estimator, cost_weights=task.cost_weights).fit(X, y, X_val=X_val, y_val=y_val)
    found = {}
    for model in frontier.tried_models_:
        cost = model.predict_cost(X_test)
        nodes = model.model_.shape.n_nodes
        point = Point(cost.mean(), np.percentile(cost, 95), model.score(X_test, y_test), nodes)
        found[model.cost_weight] = point, model
    return found


def fit_boosted(task: Task, data, random_state: int) -> Point:
    """Plain LightGBM with the same rounds, depth and stopping, its cost counted in the same way."""
    classes = np.unique(task.y) if task.is_classes else None
    sets = [(X, y if classes is None else classes.searchsorted(y)) for X, y in data[:2]]
    names = [f"x{j}" for j in range(task.X.shape[1])]
    train, validation = (lightgbm.Dataset(X, y, feature_name=names) for X, y in sets)
    booster = lightgbm.train(
        {
            "objective": "regression" if classes is None else "binary",
            "max_depth": 4,
            "num_leaves": 16,
            "seed": random_state,
            "num_threads": 1,
            "verbosity": -1,
        },
        train,
        num_boost_round=200,
        valid_sets=[validation],
        callbacks=[lightgbm.early_stopping(20, verbose=False)],
    )
    model = from_lightgbm(booster, task.costs, classes=classes)
    X, y = data[2]
    cost, predicted = model.predict_cost(X), model.predict(X)
    quality = r2_score(y, predicted) if classes is None else accuracy_score(y, predicted)
    return Point(cost.mean(), np.percentile(cost, 95), quality, 1)


class Progress:
    """One line that says what is going on, on a terminal only."""

    def __init__(self, total: int):
        self.done, self.total, self.shown = 0, total, sys.stderr.isatty()

    def next(self, what: str) -> None:
        self.done += 1
        if self.shown:
            print(f"\r\033[K  [{self.done}/{self.total}] {what}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def measure(task: Task, splits: int, progress: Progress) -> tuple[list[Point], Point, Any]:
    """Mean test results for each cost_weight and for boosting, printed as they come; and a tree worth drawing."""
    full = task.costs.resolve([f"x{j}" for j in range(task.X.shape[1])]).full_cost
    print(f"\n{task.title}")
    splits_text = "one split" if splits == 1 else f"mean of {splits} splits"
    print(f"{len(task.y)} rows, {task.X.shape[1]} features that cost {full:g} together; test data, {splits_text}\n")
    print(f"{'':24}{'mean cost':>10}{'p95 cost':>10}{task.quality_name:>10}{'nodes':>8}")
    data = [split(task, state) for state in range(splits)]

    def row(name: str, points: list[Point]) -> Point:
        progress.clear()
        mean = Point(*(float(value) for value in np.mean(points, axis=0)))
        print(f"{name:24}{mean.cost:10.2f}{mean.p95:10.2f}{mean.quality:10.3f}{mean.nodes:8.1f}", flush=True)
        return mean

    boosted = []
    for state in range(splits):
        progress.next("boosted trees")
        boosted.append(fit_boosted(task, data[state], state))
    reference = row("boosted trees", boosted)
    found = []
    for state in range(splits):
        progress.next(f"trees of classifiers, split {state + 1}")
        found.append(fit_trees(task, data[state], state))
    curve = [row(f"cost_weight {weight:g}", [trees[weight][0] for trees in found]) for weight in task.cost_weights]
    models = [(trees[w][1], data[state][0]) for state, trees in enumerate(found) for w in task.cost_weights]
    return curve, reference, max(models, key=lambda pair: difference_of_paths(pair[0], pair[1][0]))


def difference_of_paths(model: Any, X: np.ndarray) -> float:
    """How much the cost of a row depends on its path: the standard deviation of the mean costs of the paths."""
    cost, terminals = model.predict_cost(X), model.apply(X)
    mean = np.bincount(terminals, cost) / np.maximum(np.bincount(terminals), 1)
    return float(np.std(mean[terminals]))


def draw_picture(measured: list[tuple[Task, list[Point], Point, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from cstc.plotting import CostQualityDisplay, TreeDisplay

    figure = plt.figure(figsize=(10, 8.4), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(5, 7))
    for (task, curve, reference, _), ax in zip(measured, np.atleast_1d(top.subplots(1, len(measured))), strict=True):
        CostQualityDisplay.from_predictions(
            [[p.cost for p in curve], [reference.cost]],
            [[p.quality for p in curve], [reference.quality]],
            ["tree of classifiers", "boosted trees"],
            quality_name=task.quality_name,
            ax=ax,
        )
        ax.set_title(task.title, fontsize=10)
    task, _, _, (model, (X, y)) = max(measured, key=lambda m: difference_of_paths(m[3][0], m[3][1][0]))
    bottom.suptitle(f"{task.title.split(':')[0]}: one of the trees (cost_weight {model.cost_weight:g})", fontsize=10)
    TreeDisplay.from_estimator(model, X, y, ax=bottom.subplots())
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one split, two values of cost_weight")
    parser.add_argument("--out", type=Path, default=Path("out/demo.png"))
    options = parser.parse_args()
    start = perf_counter()
    tasks = [diabetes(), breast_cancer()]
    if options.quick:
        tasks = [task._replace(cost_weights=task.cost_weights[1::3]) for task in tasks]
    splits = 1 if options.quick else 3
    progress = Progress(2 * splits * len(tasks))
    print("Every feature has its price. A tree of classifiers buys, for each input, only what its path needs.")
    measured = [(task, *measure(task, splits, progress)) for task in tasks]
    draw_picture(measured, options.out)
    print(f"\nDone in {perf_counter() - start:.0f} s.  Picture: {options.out}")
    print("A higher cost_weight buys less. Next: README.md for ten lines of your own,")
    print("examples/quadrants.py for the paper's synthetic experiment, docs/beyond-the-paper.md for how it works.")


if __name__ == "__main__":
    main()
