"""Tests and errors in one currency: what a decision costs in all, against three ways to decide without cstc.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/money.py --data PATH            # four sets, 20 states; an hour
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/money.py --data PATH --sets heart_cleveland --states 3
    .venv/bin/python benchmarks/money.py --report                                 # the table of what is finished

For a set and a random state, rows are split 60/20/20.  An error costs L times the full bill, for L = 1, 3, 10 and 100:
once all errors alike, once 10 L / 5.5 for a missed case against L / 5.5 for any other error (a case: disease, diabetes,
death; for thyroid both kinds of sick, called normal).  What a test row costs is what its features cost plus what the
decision costs.

ours
    ``CSTCClassifier(costs=, error_costs=)`` on the first two parts together: it is cross-fitted and chooses nothing on
    rows of its own.
nothing
    No feature is bought, and all rows get the decision that is best by the shares of the classes.
full
    LightGBM on the first part, stopped early on the second: with the decision of least expected cost by its own
    probabilities, or with the odds of a case moved by a factor that is chosen on the second part.  The better one of
    both, in hindsight.
CEGB
    LightGBM's cost-efficient boosting, both penalties at 14 strengths, and that factor: chosen together on the second
    part by the cost of all.

The best of the three by its mean over states, in hindsight, is what ours is compared with, cell by cell.  All are
charged by the same code for the items on the branches that a row takes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import warnings
from pathlib import Path

import lightgbm
import numpy as np

from ahead import SETS, STRENGTHS, Data, geometric
from cstc import CSTCClassifier, UnseenValueWarning, from_lightgbm

STAKES = (1, 3, 10, 100)  # times the full bill
CASES = {"heart_cleveland": [1], "hepatitis": [0], "pima_diabetes": [1], "ann_thyroid": [0, 1]}
FACTORS = np.geomspace(1 / 30, 30, 61)  # of the odds of a case; 1 is one of them
RIVALS = ("nothing", "full, own probabilities", "full, chosen factor", "CEGB")


def prices_of_errors(name: str, n_classes: int, bill: float) -> dict[str, np.ndarray]:
    """For each kind of errors, what a decision costs at L = 1."""
    alike = np.full((n_classes, n_classes), bill)
    missed = np.full((n_classes, n_classes), bill / 5.5)
    well = [k for k in range(n_classes) if k not in CASES[name]]
    missed[np.ix_(CASES[name], well)] *= 10
    for prices in (alike, missed):
        np.fill_diagonal(prices, 0.0)
    return {"alike": alike, "10:1": missed}


def errors(prices: np.ndarray, shares: np.ndarray, y: np.ndarray) -> float:
    """The mean price of the decisions of least expected cost."""
    return float(prices[y, (shares @ prices).argmin(axis=1)].mean())


class Rivals:
    """LightGBM's ensembles of one state, for all prices of errors."""

    def __init__(self, name: str, train: Data, validation: Data, test: Data):
        n_classes = len(np.unique(train.y))
        self.y = {"validation": validation.y, "test": test.y}
        self.prior = np.bincount(train.y, minlength=n_classes) / len(train.y)
        self.well = [k for k in range(n_classes) if k not in CASES[name]]
        self.points: list[dict[str, tuple[np.ndarray, float]]] = []
        parameters = {
            "objective": "binary" if n_classes == 2 else "multiclass",
            "learning_rate": 0.1,
            "min_data_in_leaf": max(1, min(20, len(train.y) // 20)),
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "verbosity": -1,
        } | ({"num_class": n_classes} if n_classes > 2 else {})
        risk = -2.0 * float(self.prior @ np.log(self.prior))
        unit = risk / np.median(train.prices[train.prices > 0]) * train.prices

        def fit(extra: dict) -> None:
            rows = lightgbm.Dataset(train.X, train.y, feature_name=train.columns)
            judges = rows.create_valid(validation.X, validation.y)
            stop = lightgbm.early_stopping(20, verbose=False)
            booster = lightgbm.train(parameters | extra, rows, 300, valid_sets=[judges], callbacks=[stop])
            model = from_lightgbm(booster, train.costs)
            point = {}
            for part, data in (("validation", validation), ("test", test)):
                shares, cost = model.predict_proba(data.X, return_cost=True)
                point[part] = shares, float(cost.mean())
            self.points.append(point)

        fit({})
        for strength in STRENGTHS:
            for penalty, factor in (("lazy", 1.0), ("coupled", float(len(train.y)))):
                fit({f"cegb_penalty_feature_{penalty}": list(strength * factor * unit)})

    def total(self, number: int, part: str, prices: np.ndarray, factor: float) -> float:
        shares, cost = self.points[number][part]
        moved = shares.copy()
        moved[:, self.well] /= factor
        return cost + errors(prices, moved, self.y[part])

    def totals(self, prices: np.ndarray) -> dict[str, float]:
        """What each rival costs on the test rows."""

        def chosen(numbers: range) -> float:
            """Of some points, with the factor, by the validation rows; of equal ones, the factor nearest to 1."""
            near = sorted(FACTORS, key=lambda factor: abs(np.log(factor)))
            tried = [(self.total(number, "validation", prices, f), number, f) for number in numbers for f in near]
            _, number, factor = min(tried, key=lambda each: each[0])
            return self.total(number, "test", prices, factor)

        everyone = np.tile(self.prior, (len(self.y["test"]), 1))
        everything = range(len(self.points))
        found = errors(prices, everyone, self.y["test"]), self.total(0, "test", prices, 1.0), chosen(range(1))
        return dict(zip(RIVALS, (*found, chosen(everything)), strict=True))


def run_state(name: str, data: Data, state: int) -> dict:
    train, validation, test = data.split(state)
    rivals = Rivals(name, train, validation, test)
    X, y = np.concatenate([train.X, validation.X]), np.concatenate([train.y, validation.y])
    bill, cells = float(data.prices.sum()), []
    for stake in STAKES:
        for kind, prices in prices_of_errors(name, len(rivals.prior), bill).items():
            prices = stake * prices
            options = {"costs": data.costs, "error_costs": prices, "random_state": state, "n_jobs": 1}
            model = CSTCClassifier(**options).fit(X, y)
            found = {
                "ours": float(model.total_cost(test.X, test.y).mean()),
                "forecast": float(model.expected_total_cost(test.X).mean()),
                "tests": float(model.predict_cost(test.X).mean()),
            } | rivals.totals(prices)
            cells.append({"stake": stake, "errors": kind} | {who: value / bill for who, value in found.items()})
    return {"cells": cells, "rows": len(data.y), "date": datetime.date.today().isoformat()}


def report(cache: Path) -> None:
    """All costs in full bills; ratios against the rival that is best in the mean over states, in hindsight."""
    ratios, forecasts = [], []
    print("mean costs of a test row in full bills, tests and errors")
    print(f"{'set':16s} {'L':>4s} {'errors':6s} " + " ".join(f"{who:>24s}" for who in RIVALS), end="")
    print(f" {'ours':>8s} {'(tests)':>8s}   ratio  (standard error)   forecast / measured")
    for name in CASES:
        states = [json.loads(path.read_text()) for path in sorted(cache.glob(f"{name}-*.json"))]
        if not states:
            continue
        of_set = []
        for number, first in enumerate(states[0]["cells"]):
            cells = [state["cells"][number] for state in states]
            mean = {who: np.mean([cell[who] for cell in cells]) for who in (*RIVALS, "ours", "tests", "forecast")}
            best = min(RIVALS, key=lambda who: mean[who])
            differences = np.array([cell["ours"] - cell[best] for cell in cells])
            error = differences.std(ddof=1) / np.sqrt(len(cells)) / mean[best] if len(cells) > 1 else np.nan
            ratio = mean["ours"] / mean[best]
            of_set.append(ratio)
            forecasts.append(mean["forecast"] / mean["ours"])
            late = "  ABOVE 1 by more than two standard errors" if ratio - 1 > 2 * error else ""
            print(
                f"{name:16s} {first['stake']:4d} {first['errors']:6s} "
                + " ".join(f"{mean[who]:23.3f}{'*' if who == best else ' '}" for who in RIVALS)
                + f" {mean['ours']:8.3f} {mean['tests']:8.3f}   {ratio:.3f}  ({error:.3f})   {forecasts[-1]:.3f}{late}"
            )
        print(f"{name}: geometric mean of {len(of_set)} cells {geometric(of_set):.3f}, {len(states)} states")
        ratios += of_set
    if not ratios:
        raise SystemExit(f"nothing is finished in {cache}; run with --data PATH first")
    off = np.abs(np.array(forecasts) - 1)
    print(f"geometric mean of {len(ratios)} cells: {geometric(ratios):.3f}")
    print(f"forecast / measured: mean {np.mean(forecasts):.3f}, off by {off.mean():.3f}, at most {off.max():.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the data sets")
    parser.add_argument("--sets", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--states", type=int, default=20)
    parser.add_argument("--first-state", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=Path(__file__).parent / "cache" / "money")
    parser.add_argument("--report", action="store_true", help="only print what is finished")
    arguments = parser.parse_args()
    if not arguments.report:
        if arguments.data is None:
            raise SystemExit("give the folder with the data sets: --data PATH, or --report")
        warnings.simplefilter("ignore", UnseenValueWarning)
        arguments.cache.mkdir(parents=True, exist_ok=True)
        for name in arguments.sets:
            data = SETS[name].load(arguments.data / name)
            for state in range(arguments.first_state, arguments.states):
                path = arguments.cache / f"{name}-{state:02d}.json"
                if not path.exists():
                    found = run_state(name, data, state)
                    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
                    unfinished.write_text(json.dumps(found))
                    unfinished.replace(path)
                    print(f"{name}, state {state}: done", flush=True)
    report(arguments.cache)


if __name__ == "__main__":
    main()
