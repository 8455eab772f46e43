"""What one set of features for all documents reaches on mq2007, and what it costs.

    OMP_NUM_THREADS=1 python benchmarks/fixed_sets.py --data PATH --ahead out/ahead     # about 3 minutes

For each of the five rotations of `ahead.py`, LightGBM learns from all features of price 1 together; from the one
feature of a price of at most 20 that is best on validation rows; and from features that are taken one after the other,
each time the one that gains most NDCG@5 on validation rows for the root of its price.  All documents have all of them.
Cost and NDCG@5 on test rows are means over rotations, and so is the lift of LightGBM without prices, which `ahead.py`
has measured.  It shows what gates and choices have to be better than: a document that has bought less than the
cheapest feature which says much is answered with next to nothing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

import lightgbm
import numpy as np

from ahead import PLAIN, REGULARISED, SETS, Data, baseline_quality, quality

NAME = "mq2007_partial"
MOST_PRICE, MOST_FEATURES, ROUNDS = 20.0, 5, 80


def reached(parts: list[Data], columns: list[int]) -> tuple[float, float]:
    """NDCG@5 on validation and on test rows."""
    train, validation, test = parts
    parameters = PLAIN | REGULARISED | {"objective": "regression"}
    booster = lightgbm.train(parameters, lightgbm.Dataset(train.X[:, columns], train.y), ROUNDS)
    one, other = (quality(part, booster.predict(part.X[:, columns])[:, None]) for part in (validation, test))
    return one, other


def one_more(parts: list[Data], columns: list[int]) -> dict[int, tuple[float, float]]:
    """NDCG@5 on validation and on test rows with each further feature."""
    prices = parts[0].prices
    return {j: reached(parts, [*columns, j]) for j in np.flatnonzero(prices <= MOST_PRICE).tolist() if j not in columns}


def greedy(parts: list[Data]) -> list[tuple[float, float]]:
    """Cost and NDCG@5 on test rows: of the best feature alone, then of one, two, .. that gain most for their prices."""
    prices, columns = parts[0].prices, list[int]()
    known, found = baseline_quality(parts[1]), list[tuple[float, float]]()
    while len(columns) < MOST_FEATURES:
        told = one_more(parts, columns)
        if not columns:
            alone = max(told, key=lambda j: told[j][0])
            found.append((float(prices[alone]), told[alone][1]))
        best = max(told, key=lambda j: (told[j][0] - known) / np.sqrt(prices[j]))
        columns.append(best)
        known = told[best][0]
        found.append((float(prices[columns].sum()), told[best][1]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the data sets")
    parser.add_argument("--ahead", type=Path, default=Path("out/ahead"), help="the cache of ahead.py")
    arguments = parser.parse_args()
    states = range(SETS[NAME].n_states)
    if not arguments.data.is_dir():
        parser.error("--data must name the folder with the data sets")
    paths = [arguments.ahead / f"{NAME}-{state:02d}.json" for state in states]
    missing = [path for path in paths if not path.exists()]
    if missing:
        parser.error(f"{missing[0]} is not there; run ahead.py --sets {NAME} first, and name its --cache")
    data, measured = SETS[NAME].load(arguments.data / NAME), [json.loads(path.read_text()) for path in paths]
    full = np.mean([each["full"]["test_quality"] for each in measured])
    constant = np.mean([each["constant"] for each in measured])
    versions = ", ".join(f"{name} {version(name)}" for name in ("lightgbm", "scikit-learn", "numpy"))
    where = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{datetime.date.today()}, {where}, {versions}\n")
    print("| features of all documents | cost | NDCG@5 | part of the lift |")
    print("|---|---|---|---|")

    def tell(what: str, points: list[tuple[float, float]]) -> None:
        cost, ndcg = np.mean(points, axis=0)
        print(f"| {what} | {cost:.1f} | {ndcg:.4f} | {(ndcg - constant) / (full - constant):.0%} |", flush=True)

    parts = [data.split(state) for state in states]
    cheap = np.flatnonzero(data.prices == 1).tolist()
    tell(f"all {len(cheap)} of price 1", [(float(len(cheap)), reached(each, cheap)[1]) for each in parts])
    steps = [greedy(each) for each in parts]
    names = ["the best one", *(f"{number} by gain and price" for number in range(1, MOST_FEATURES + 1))]
    for name, points in zip(names, zip(*steps, strict=True), strict=True):
        tell(name, list(points))


if __name__ == "__main__":
    main()
