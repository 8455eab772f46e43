"""The paper's synthetic experiment: four quadrants, two cheap features, four expensive ones.

    python examples/quadrants.py                           one run of each method, tables and pictures
    python examples/quadrants.py --method paper            the paper's figure, made by the paper's procedure
    python examples/quadrants.py --states 20 --means all   how often it works: 20 random states, all sets of means
    python examples/quadrants.py --distance --states 20    how often, against the distance of the means

A perfect predictor pays 12 for each input: the two signs tell the quadrant, and one expensive feature is the label.
Every run trains with a few values of cost_weight and takes the cheapest model whose validation MSE is
below 0.01 (the most accurate one if there is none), then reports it on test data.

The paper does not give the means.  Its gates have slope 1, so that quadrants whose means are 2 apart leak into each
other; its procedure is shown with means that are 40 apart.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import warnings
from datetime import date
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from cstc import CostModel, CSTCRegressor, Exact, Paper
from cstc.datasets import QUADRANT_COSTS, make_quadrants

FEATURES = ("sign(x)", "sign(z)", "y++", "y+-", "y-+", "y--")
MEANS = ((3.0, 1.0, -1.0, -3.0), (4.0, 1.0, 0.0, -2.0), (2.0, 0.5, -0.5, -2.0))  # of ++, +-, -+, --
FAR = (60.0, 20.0, -20.0, -60.0)
SCALES = (1, 5, 10, 20, 50, 100)  # of the first means, in --distance
#: A quadrant has variance 1 wherever its mean is, so buying its feature is worth 1 for a price of 10 at any distance:
#: the same cost weights, below 0.1, for all means.
EXACT_WEIGHTS = (0.01, 0.03, 0.05, 0.1, 0.15, 0.2)
#: The relaxed cost of a weight w is 10 |w|, and the first step of w from 0 lowers the risk by 2 |w|: a leaf buys below
#: 0.2.  Inner nodes stop buying earlier, the more so the larger a weight must be to count.  Between the two is what we
#: look for.
PAPER_WEIGHTS = (0.1, 0.105, 0.11, 0.115, 0.12, 0.125, 0.13, 0.14, 0.16, 0.2, 0.24)
GOOD_MSE, BEST_COST = 0.01, 12.0
#: Solved runs, median MSE and median cost, by scale of the means and by method.
Found = dict[float, dict[str, list[float]]]


class Setting(NamedTuple):
    """A method, the cost weights to choose from, and means that are its own."""

    title: str
    method: Exact | Paper
    cost_weights: tuple[float, ...]
    means: tuple[tuple[float, ...], ...]  # the first one is drawn; all are repeated


SETTINGS = {
    "exact": Setting("Exact()", Exact(), EXACT_WEIGHTS, MEANS),
    "paper": Setting("Paper()", Paper(), PAPER_WEIGHTS, (FAR, *MEANS)),
}
#: What --distance compares.
COMPARED = {
    "Exact()": SETTINGS["exact"],
    "Paper()": SETTINGS["paper"],
    "Paper(gate_slope=5)": Setting("Paper(gate_slope=5)", Paper(gate_slope=5.0), PAPER_WEIGHTS, (FAR,)),
    "Paper(gate_slope=20)": Setting("Paper(gate_slope=20)", Paper(gate_slope=20.0), PAPER_WEIGHTS, (FAR,)),
}


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


def run(setting: Setting, data, random_state: int, cost_weights=None) -> Result:
    """Fit with every cost weight; validation data chooses, test data reports."""
    (X, y), (X_val, y_val), (X_test, y_test) = data
    candidates = []
    for cost_weight in cost_weights or setting.cost_weights:
        model = CSTCRegressor(
            costs=QUADRANT_COSTS,
            cost_weight=cost_weight,
            method=setting.method,
            weak_learners="identity",
            random_state=random_state,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # gates that leak take long to settle
            model.fit(X, y, X_val=X_val, y_val=y_val)
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


def show(setting: Setting, means, result: Result, seconds: float) -> None:
    reached = "" if result.mse < GOOD_MSE else f"   (no cost_weight reached a validation MSE below {GOOD_MSE})"
    print(f"\n{setting.title}: means {_text(means)}, cost_weight {result.model.cost_weight}, {seconds:.0f} s{reached}")
    print(f"  test MSE {result.mse:.5f}   mean cost {result.cost:.2f}")
    for features, cost, share in result.paths:
        print(f"  path of {share:4.0%} of the rows   cost {cost:5.2f}   buys {features}")


def _text(means) -> str:
    return "(" + ", ".join(f"{mean:g}" for mean in means) + ")"


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
    if np.ptp(means) > 20:
        give_own_scales(display)
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
    print(f"  pictures: {path} and {tree}")


def give_own_scales(display) -> None:
    """Where means are far apart, weights of leaves and points of a quadrant cannot be seen on scales for all nodes."""
    panels = display.figure_.axes[1:]  # after the canvas: predictions and weights of each node
    for node, (points, bars) in enumerate(zip(panels[0::2], panels[1::2], strict=True)):
        weights = display.weights[:, node]
        low, high = min(weights.min(), 0.0), max(weights.max(), 0.0)
        if high > low:
            bars.set_ylim(low - 0.15 * (high - low), high + 0.3 * (high - low))
        if display.shape.is_leaf[node]:
            seen = display.y[display.flow.visits[:, node]]
            limits = (seen.min() - 0.5, seen.max() + 0.5)
            points.set(xlim=limits, ylim=limits)
    display.figure_.text(0.99, 0.02, "every node has its own scales", fontsize=8, ha="right")


# -- how often -----------------------------------------------------------------------------------------------------


def runs(setting: Setting, means, states: int, n: int, cost_weights=None, first: int = 0) -> list[Result]:
    """One result for each random state, with progress for people."""
    results = []
    for state in range(first, first + states):
        results.append(run(setting, draw(means, state, n), state, cost_weights))
        if sys.stderr.isatty():
            line = f"\r\033[K  {_text(means)}  {setting.title}  {state - first + 1} of {states}"
            print(line, end="" if state - first + 1 < states else "\r\033[K", file=sys.stderr, flush=True)
    return results


def repeat(
    settings: list[Setting], all_means: bool, states: int, n: int, cost_weights=None, first: int = 0
) -> None:
    """How often each method finds the perfect predictor."""
    for setting in settings:
        print(f"\n{setting.title}, {states} random states" + (f" from {first} on" if first else ""))
        for means in setting.means if all_means else setting.means[:1]:
            start = perf_counter()
            results = runs(setting, means, states, n, cost_weights, first)
            perfect, right = sum(r.is_perfect for r in results), sum(r.buys_right for r in results)
            mse, cost = np.median([r.mse for r in results]), np.median([r.cost for r in results])
            print(
                f"  means {_text(means):<18}  "
                f"MSE < {GOOD_MSE} at cost exactly {BEST_COST:.2f}: {perfect} of {states};  "
                f"all paths buy 2 cheap + 1 expensive: {right} of {states};  "
                f"median MSE {mse:.5f}, median cost {cost:.2f}   ({perf_counter() - start:.0f} s)",
                flush=True,
            )


def measure_distance(states: int, n: int, scales, table: Path, picture: Path, command: str, cost_weights=None) -> None:
    """Share of solved runs against the distance of the means.

    Every figure is kept in a JSON file beside the table, so that a run which was killed goes on where it stopped.
    """
    kept = table.with_suffix(".json")
    setup = f"{states} states, {n} rows, {cost_weights or 'all'} weights"
    cells: dict[str, list[float]] = json.loads(kept.read_text()) if kept.exists() else {}
    table.parent.mkdir(parents=True, exist_ok=True)
    for scale in scales:
        means = tuple(scale * mean for mean in MEANS[0])
        for name, setting in COMPARED.items():
            key, start = f"{setup}, {scale:g}, {name}", perf_counter()
            if key in cells:
                continue
            results = runs(setting, means, states, n, cost_weights)
            solved = sum(r.is_perfect for r in results)
            cells[key] = [
                solved,
                float(np.median([r.mse for r in results])),
                float(np.median([r.cost for r in results])),
            ]
            kept.write_text(json.dumps(cells, indent=1))
            print(f"{_text(means)}  {name}: {solved} of {states}   ({perf_counter() - start:.0f} s)", file=sys.stderr)
    found = {scale: {name: cells[f"{setup}, {scale:g}, {name}"] for name in COMPARED} for scale in sorted(scales)}
    table.write_text(_distance_table(found, states, n, command, cost_weights))
    draw_distance(found, states, picture)
    print(f"{table.read_text()}\n{table} and {picture}")


def _short(mse: float) -> str:
    return "0" if mse < 5e-5 else f"{mse:.2g}"


def _distance_table(found: Found, states: int, n: int, command: str, cost_weights) -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("cstc", "numpy", "scipy", "scikit-learn"))
    threads = os.environ.get("OMP_NUM_THREADS", "not set")
    lines = [
        "# Solved runs of the paper's synthetic experiment against the distance of the means",
        "",
        f"{date.today()}, {_processor()}, Python {platform.python_version()}, {packages}; OMP_NUM_THREADS {threads}.",
        "",
        f"    {command}",
        "",
        f"Of {states} random states with {n:,} rows each to train, choose and test: those with a test MSE below",
        f"{GOOD_MSE} at a mean cost of exactly {BEST_COST:.2f}. The cheapest cost_weight with a validation MSE below",
        f"{GOOD_MSE} is taken, or the most accurate one if there is none.",
        "",
        f"- `Exact()` chooses from {', '.join(map(str, cost_weights or EXACT_WEIGHTS))}.",
        f"- `Paper(...)` chooses from {', '.join(map(str, cost_weights or PAPER_WEIGHTS))}.",
        "",
        "In brackets: median test MSE and median cost. A quadrant has variance 1, whatever its mean.",
        "",
        "| means | distance | " + " | ".join(f"`{name}`" for name in COMPARED) + " |",
        "|---|---|" + "---|" * len(COMPARED),
    ]
    for scale, cells in found.items():
        means = _text(tuple(scale * mean for mean in MEANS[0]))
        texts = [f"{solved:g} of {states} ({_short(mse)} at {cost:.1f})" for solved, mse, cost in cells.values()]
        lines.append(f"| {means} | {2 * scale:g} | " + " | ".join(texts) + " |")
    return "\n".join(lines) + "\n"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def draw_distance(found: Found, states: int, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from cstc.plotting import COLOURS

    figure, axes = pyplot.subplots(figsize=(7.0, 3.6), layout="constrained")
    distances = [2 * scale for scale in found]
    markers = "osD^v"
    for k, name in enumerate(COMPARED):
        shares = [cells[name][0] / states for cells in found.values()]
        size = {"ms": 12 - 2.5 * k, "lw": 5 - 1.2 * k}  # lines that coincide stay visible
        axes.plot(distances, shares, marker=markers[k], color=COLOURS[k], label=name, clip_on=False, **size)
    axes.set(
        xscale="log", ylim=(0, 1.0), xlabel="distance of the means of neighbouring quadrants (their variance is 1)"
    )
    axes.set_ylabel("share of solved runs")
    axes.set_xticks(distances, [f"{distance:g}" for distance in distances])
    axes.minorticks_off()
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0], ["none", "25%", "50%", "75%", "all"])
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"MSE below {GOOD_MSE} at a cost of exactly {BEST_COST:.2f}", fontsize=10, loc="left", pad=12)
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=SETTINGS, nargs="+", default=list(SETTINGS), help="default: both")
    parser.add_argument("--states", type=int, default=1, help="number of random states (default: 1, with pictures)")
    parser.add_argument("--first", type=int, default=0, help="the first of the random states (default: 0)")
    parser.add_argument("--means", choices=("first", "all"), default="first", help="one or all sets of means")
    parser.add_argument("--distance", action="store_true", help="share of solved runs against the distance of means")
    parser.add_argument("--scales", type=float, nargs="+", default=SCALES, help="of the means, with --distance")
    parser.add_argument("--rows", type=int, default=1000, help="rows of training, validation and test data each")
    parser.add_argument("--cost-weights", type=float, nargs="+", help="instead of those of each method")
    parser.add_argument("--out", type=Path, default=Path("out/quadrants.png"), help="picture; others stand beside it")
    parser.add_argument("--table", type=Path, default=Path("out/quadrants-distance.md"), help="with --distance")
    options = parser.parse_args()
    if options.distance:
        command = " ".join(["python", "examples/quadrants.py", *sys.argv[1:]])
        picture = options.out.with_stem(f"{options.out.stem}-distance")
        return measure_distance(
            options.states, options.rows, options.scales, options.table, picture, command, options.cost_weights
        )
    if options.states > 1 or options.means == "all":
        settings = [SETTINGS[name] for name in options.method]
        how = options.states, options.rows, options.cost_weights, options.first
        return repeat(settings, options.means == "all", *how)
    print(f"Quadrants, {options.rows} rows; a perfect predictor pays {BEST_COST:.2f}.")
    for name in options.method:
        setting, start = SETTINGS[name], perf_counter()
        means = setting.means[0]
        data = draw(means, 0, options.rows)
        result = run(setting, data, 0, options.cost_weights)
        show(setting, means, result, perf_counter() - start)
        first = name == options.method[0]
        draw_picture(result, means, data, options.out if first else options.out.with_stem(f"{options.out.stem}-{name}"))


if __name__ == "__main__":
    main()
