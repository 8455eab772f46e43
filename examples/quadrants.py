"""The paper's synthetic experiment: four quadrants, two cheap features, four expensive ones.

    python examples/quadrants.py                           one run, table and pictures (out/quadrants.png)
    python examples/quadrants.py --states 20 --means all   how often it works: 20 random states, three sets of means

A perfect predictor pays 12 for each input: the two signs tell the quadrant, and one expensive feature is the label.
Every run trains with a few values of cost_weight and takes the cheapest model whose validation MSE is
below 0.01 (the most accurate one if there is none), then reports it on test data.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

from cstc import CostModel, CSTCRegressor
from cstc.datasets import QUADRANT_COSTS, make_quadrants

FEATURES = ("sign(x)", "sign(z)", "y++", "y+-", "y-+", "y--")
MEANS = ((3.0, 1.0, -1.0, -3.0), (4.0, 1.0, 0.0, -2.0), (2.0, 0.5, -0.5, -2.0))  # of ++, +-, -+, --
COST_WEIGHTS = (0.01, 0.03, 0.05, 0.1, 0.15, 0.2)
METHODS = {"refined": "default", "paper": 'method="paper"'}
GOOD_MSE, BEST_COST = 0.01, 12.0


class Result(NamedTuple):
    """The chosen model of one run, judged on test data."""

    model: CSTCRegressor
    mse: float
    cost: float
    paths: list[tuple[str, float, float]]  # features bought, cost and share of rows of each path in use

    @property
    def is_perfect(self) -> bool:
        return self.mse < GOOD_MSE and abs(self.cost - BEST_COST) < 1e-9

    @property
    def buys_right(self) -> bool:
        """Whether every path buys the two cheap features and one expensive one."""
        bought = [features.split(", ") for features, _, _ in self.paths]
        return all(len(names) == 3 and set(FEATURES[:2]) < set(names) for names in bought)


def draw(means, random_state: int, n: int):
    """Training, validation and test data."""
    seeds = np.random.SeedSequence(random_state).spawn(3)
    return [make_quadrants(n, means=means, random_state=np.random.default_rng(seed)) for seed in seeds]


def run(method: str, data, cost_weights, random_state: int) -> Result:
    (X, y), (X_val, y_val), (X_test, y_test) = data
    candidates = []
    for cost_weight in cost_weights:
        model = CSTCRegressor(
            costs=QUADRANT_COSTS,
            cost_weight=cost_weight,
            method=method,
            weak_learners="identity",
            depth=3,
            max_iter=500,
            random_state=random_state,
        ).fit(X, y, X_val=X_val, y_val=y_val)
        mse = np.mean((model.predict(X_val) - y_val) ** 2)
        cost = model.predict_cost(X_val).mean()
        candidates.append(((cost, mse) if mse < GOOD_MSE else (np.inf, mse), model))
    model = min(candidates, key=lambda candidate: candidate[0])[1]
    mse = float(np.mean((model.predict(X_test) - y_test) ** 2))
    return Result(model, mse, float(model.predict_cost(X_test).mean()), paths_of(model, X_test))


def paths_of(model: CSTCRegressor, X) -> list[tuple[str, float, float]]:
    items, costs = model.model_.terminal_items(), model.model_.terminal_costs()
    shares = np.bincount(model.apply(X), minlength=len(costs)) / len(X)
    return [
        (", ".join(FEATURES[r] for r in np.flatnonzero(items[l])) or "nothing", costs[l], shares[l])
        for l in np.flatnonzero(shares)
    ]


def show(method: str, result: Result, seconds: float) -> None:
    reached = "" if result.mse < GOOD_MSE else f"   (no cost_weight reached a validation MSE below {GOOD_MSE})"
    print(f"\n{METHODS[method]}: cost_weight {result.model.cost_weight}, {seconds:.0f} s{reached}")
    print(f"  test MSE {result.mse:.5f}   mean cost {result.cost:.2f}")
    for features, cost, share in result.paths:
        print(f"  path of {share:4.0%} of the rows   cost {cost:5.2f}   buys {features}")


def draw_picture(result: Result, means, data, path: Path) -> None:
    """Figure "CSTC on synthetic data": the data in a box, the tree, predictions and weights at every node."""
    import matplotlib

    matplotlib.use("Agg")
    from cstc.plotting import COLOURS, NodePredictionsDisplay, TreeDisplay

    X, y = data[-1]
    quadrants = np.array(["++", "+−", "−+", "−−"])
    groups = quadrants[2 * (X[:, 0] < 0).astype(int) + (X[:, 1] < 0).astype(int)]
    display = NodePredictionsDisplay.from_estimator(result.model, X, y, groups=groups, feature_names=FEATURES)
    figure = display.figure_
    wide, high = figure.get_size_inches()
    box = figure.add_axes((0.45 / wide, 1 - 2.55 / high, 2.15 / wide, 2.15 / high))
    for quadrant, mean in zip(quadrants, means, strict=True):
        x, z = (0 if sign == "+" else -1 for sign in quadrant)
        colour = COLOURS[int(np.flatnonzero(np.unique(groups) == quadrant)[0])]
        box.add_patch(matplotlib.patches.Rectangle((x, z), 1, 1, fc=colour, alpha=0.18, lw=0))
        text = f"$\\mu_{{{quadrant}}}={mean:g}$\n\nlabel is in\n$y_{{{quadrant}}}$"
        box.text(x + 0.5, z + 0.5, text, ha="center", va="center", fontsize=8)
    box.set(xlim=(-1, 1), ylim=(-1, 1), aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
    box.set_title("the data", fontsize=9)
    box.set_xlabel("x", fontsize=8, labelpad=0)
    box.set_ylabel("z", fontsize=8, labelpad=0)
    box.tick_params(labelsize=6)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    # the tree alone; the same prices as items with names, which the picture shows
    named = CostModel(
        dict(zip(FEATURES, QUADRANT_COSTS.prices, strict=True)),
        requires={f"x{j}": [name] for j, name in enumerate(FEATURES)},
    )
    tree = path.with_stem(f"{path.stem}-tree")
    TreeDisplay.from_estimator(result.model.with_costs(named), X, y).figure_.savefig(tree, dpi=100)
    print(f"\npictures: {path} and {tree}")


def repeat(states: int, sets_of_means, methods, n: int, cost_weights) -> None:
    """How often each method finds the perfect predictor."""
    width = max(len(name) for name in METHODS.values())
    for means in sets_of_means:
        print(f"\nmeans {means}, {states} random states")
        for method in methods:
            name, results, start = METHODS[method], [], perf_counter()
            for state in range(states):
                results.append(run(method, draw(means, state, n), cost_weights, state))
                if sys.stderr.isatty():
                    print(f"\r  {name:<{width}}  {state + 1} of {states}", end="", file=sys.stderr, flush=True)
            if sys.stderr.isatty():
                print("\r\033[K", end="", file=sys.stderr)
            perfect, right = sum(r.is_perfect for r in results), sum(r.buys_right for r in results)
            mse, cost = np.median([r.mse for r in results]), np.median([r.cost for r in results])
            print(
                f"  {name:<{width}}  MSE < {GOOD_MSE} at cost exactly {BEST_COST:.2f}: {perfect} of {states};  "
                f"all paths buy 2 cheap + 1 expensive: {right} of {states};  "
                f"median MSE {mse:.5f}, median cost {cost:.2f}   ({perf_counter() - start:.0f} s)",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=1, help="number of random states (default: 1, with picture)")
    parser.add_argument("--means", choices=("first", "all"), default="first", help="one or all three sets of means")
    parser.add_argument("--methods", choices=METHODS, nargs="+", default=list(METHODS), help="default: both")
    parser.add_argument("--rows", type=int, default=1000, help="rows of training, validation and test data each")
    parser.add_argument("--cost-weights", type=float, nargs="+", default=COST_WEIGHTS)
    parser.add_argument("--out", type=Path, default=Path("out/quadrants.png"))
    options = parser.parse_args()
    sets_of_means = MEANS if options.means == "all" else MEANS[:1]
    if options.states > 1 or len(sets_of_means) > 1:
        return repeat(options.states, sets_of_means, options.methods, options.rows, options.cost_weights)
    print(f"Quadrants with means {MEANS[0]}, {options.rows} rows; a perfect predictor pays {BEST_COST:.2f}.")
    data = draw(MEANS[0], 0, options.rows)
    results = {}
    for method in options.methods:
        start = perf_counter()
        results[method] = run(method, data, options.cost_weights, 0)
        show(method, results[method], perf_counter() - start)
    draw_picture(results[options.methods[0]], MEANS[0], data, options.out)


if __name__ == "__main__":
    main()
