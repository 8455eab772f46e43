"""Two cheap features say which of four expensive ones matters: what each row pays, and what it learns for that.

    OMP_NUM_THREADS=1 python benchmarks/selected.py                     # 10 draws of each kind; about 10 minutes
    OMP_NUM_THREADS=1 python benchmarks/selected.py --kinds signs --draws 2
    OMP_NUM_THREADS=1 python benchmarks/selected.py --out benchmarks/results/selected-DATE.md

Rows are drawn by `make_selectors`, 750 for each group to learn from, 5,000 to choose by and 10,000 to judge by.  A
`Frontier` of `CSTCRegressor` with its defaults is fitted, and the cheapest model with an R2 of 0.99 on the rows to
choose by is taken, or the best one if none has that.  Beside it, LightGBM with its own defaults, and its CEGB: of 12
strengths of its lazy penalty, the cheapest one with as much, or the best.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from cstc import CSTCRegressor, Frontier, from_lightgbm
from cstc.datasets import Selectors, make_selectors

#: How rows are drawn, how many groups there are, and the cost that must not be passed.
KINDS: dict[str, tuple[dict[str, Any], int, float]] = {
    "signs": ({}, 4, 12.5),
    "noise": ({"n_noise": 20}, 4, 14.0),
    "category": ({"levels": (4,), "categories": True}, 4, 11.5),
    "nested": ({"levels": (2, 3), "nested": True}, 6, 13.0),
}
ROWS = 750  # of a group
CHOOSE, JUDGE = 5_000, 10_000
ENOUGH = 0.99
STRENGTHS = np.geomspace(0.3, 1e-5, 12)


def r2(model: Any, X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """R2 and mean cost."""
    predicted, cost = model.predict(X, return_cost=True)
    return 1.0 - float(np.mean((predicted - y) ** 2) / np.var(y)), float(cost.mean())


def chosen(models: list[Any], data: Selectors, n: int) -> tuple[float, float]:
    """By the rows to choose by; R2 and cost at the others."""
    choose, judge = slice(n, n + CHOOSE), slice(n + CHOOSE, None)
    known = [(*r2(model, data.X[choose], data.y[choose]), model) for model in models]
    enough = [each for each in known if each[0] >= ENOUGH]
    taken = min(enough, key=lambda each: each[1]) if enough else max(known, key=lambda each: each[0])
    return r2(taken[2], data.X[judge], data.y[judge])


def lightgbm_models(data: Selectors, prices: np.ndarray, n: int) -> list[Any]:
    """Without prices first."""
    choose = slice(n, n + CHOOSE)
    found = []
    for strength in (0.0, *STRENGTHS):
        parameters = {"objective": "regression", "verbosity": -1, "num_threads": 1, "deterministic": True}
        if strength:
            parameters["cegb_penalty_feature_lazy"] = list(strength * prices / 10.0)
        train = lightgbm.Dataset(data.X[:n], data.y[:n], categorical_feature=data.categorical_features)
        judges = train.create_valid(data.X[choose], data.y[choose])
        stop = lightgbm.early_stopping(20, verbose=False)
        booster = lightgbm.train(parameters, train, 500, valid_sets=[judges], callbacks=[stop])
        found.append(from_lightgbm(booster, prices))
    return found


def run(kind: str, state: int) -> dict[str, tuple[float, float]]:
    how, n_groups, _ = KINDS[kind]
    n = ROWS * n_groups
    data = make_selectors(n + CHOOSE + JUDGE, random_state=state, **how)
    prices = np.array([data.costs.prices[name] for name in data.feature_names])
    options = {"categorical_features": data.categorical_features} if data.categorical_features else {}
    frontier = Frontier(CSTCRegressor(costs=prices, random_state=state, n_jobs=1, **options))
    choose = slice(n, n + CHOOSE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # costs jump from nothing to the optimum: there is nothing between
        frontier.fit(data.X[:n], data.y[:n], X_val=data.X[choose], y_val=data.y[choose])
    plain, *cegb = lightgbm_models(data, prices, n)
    return {
        "cstc": chosen(list(frontier.tried_models_), data, n),
        "CEGB": chosen(cegb, data, n),
        "LightGBM": chosen([plain], data, n),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    arguments = parser.parse_args()
    versions = ", ".join(f"{name} {version(name)}" for name in ("lightgbm", "scikit-learn", "numpy"))
    where = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    lines = [
        f"{datetime.date.today()}, {where}, {versions}; {arguments.draws} draws of each kind",
        "",
        "| kind | optimum | must | R2, mean (least) | cost, mean (most) | CEGB: R2, cost | LightGBM: R2, cost |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in arguments.kinds:
        how, _, most = KINDS[kind]
        found: dict[str, list[tuple[float, float]]] = {"cstc": [], "CEGB": [], "LightGBM": []}
        for state in range(arguments.draws):
            started = time.perf_counter()
            for name, each in run(kind, state).items():
                found[name].append(each)
            quality, cost = found["cstc"][-1]
            seconds = time.perf_counter() - started
            print(f"{kind}, draw {state}: R2 {quality:.4f} at {cost:.2f}, {seconds:.0f} s", flush=True)
        ours, theirs, plain = (np.array(found[name]) for name in found)
        beside = " | ".join(f"{each[:, 0].mean():.3f}, {each[:, 1].mean():.1f}" for each in (theirs, plain))
        optimum = make_selectors(1, **how).optimum
        lines.append(
            f"| {kind} | {optimum:g} | {most:g} | {ours[:, 0].mean():.4f} ({ours[:, 0].min():.4f}) | "
            f"{ours[:, 1].mean():.2f} ({ours[:, 1].max():.2f}) | {beside} |"
        )
    text = "\n".join(lines)
    print(text)
    if arguments.out is not None:
        title = "# Rows that need different features\n\n    python benchmarks/selected.py\n\n"
        arguments.out.write_text(title + text + "\n")


if __name__ == "__main__":
    main()
