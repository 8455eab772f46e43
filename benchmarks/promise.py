"""What expected losses are taken from: one expert or all of them; and whether shifting them helps.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/promise.py --data PATH
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/promise.py --data PATH --sets spambase --states 2

Gates weigh what a prediction is expected to lose, given the best that is known of a row (`experts/expectation.py`).
With the same experts, and for each of eleven cost weights, gates are learned by

one          the promise of the best expert alone, shrunk until it keeps it
all          that of all experts together, as the method does it
one, shifted and all, shifted: expected losses moved to the means that were observed, in all gates

and what is minimised, risk + cost weight * cost, is measured at rows that taught nothing: validation and test rows.
Printed is the mean over cost weights and states of its difference to "one", in percent, with its standard error over
states, and of the five smallest and the six largest cost weights.  Chains only: no branches, no lazy ends.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import warnings
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from scipy.optimize import minimize_scalar

import cstc
import cstc.experts.chain as chain_module
from ahead import ESTIMATORS, SETS, Data
from cstc import Experts
from cstc.experts.candidates import Nodes, _policies
from cstc.experts.expectation import Expectation, stacked
from cstc.experts.expert import scores_of
from cstc.losses import Loss
from cstc.model.build import build_tree
from cstc.rows import Rows

STATES = {"heart_cleveland": 8, "hepatitis": 8, "pima_diabetes": 8, "spambase": 2, "nhanes_classes": 2}
STATES |= {"nhanes_regression": 2, "ann_thyroid": 2, "satimage": 1, "mslr_sample": 1, "miniboone_partial": 1}
POWERS = range(11)  # cost weights: the unit of the set, halved so many times


def of_one(loss: Loss, constant: np.ndarray, candidates: list[np.ndarray], rows: Rows) -> np.ndarray:
    """The best of some margins, shrunk towards the constant until they keep their promise."""

    def risk(margins: np.ndarray) -> float:
        return loss.risk(margins, rows.y, rows.weights)

    best = min(candidates, key=risk)
    scale = minimize_scalar(lambda s: risk(constant + s * (best - constant)), bounds=(0.0, 2.0), method="bounded").x
    return constant + scale * (best - constant)


PROMISES = {"one": of_one, "all": stacked}


class Watched:
    """What the chains of all rows are made of."""

    def __init__(self) -> None:
        self.margins: list[np.ndarray] = []
        self.chains: list[tuple[Any, ...]] = []
        self._stacked, self._chain = chain_module.stacked, chain_module._chain

    def __enter__(self) -> Watched:
        def seen(loss: Loss, constant: np.ndarray, candidates: Any, rows: Rows) -> np.ndarray:
            candidates = list(candidates)
            self.margins = self.margins or candidates
            return self._stacked(loss, constant, candidates, rows)

        def made(*given: Any) -> Any:
            self.chains.append(given)
            return self._chain(*given)

        chain_module.stacked, chain_module._chain = seen, made
        return self

    def __exit__(self, *error: Any) -> None:
        chain_module.stacked, chain_module._chain = self._stacked, self._chain


def run(data: Data, state: int) -> dict[str, list[float]]:
    """Risk + cost weight * cost at rows that taught nothing, by each promise, for each cost weight."""
    train, *judges = data.split(state)
    options = {"categorical_features": train.categorical} if train.categorical else {}
    estimator = ESTIMATORS[train.task](
        costs=train.costs, method=Experts(fallbacks=False), cost_weight=0.0, random_state=state, n_jobs=1, **options
    )
    grown: list[Any] = []
    grow = Experts._grow

    def kept(self: Experts, problem: Any) -> Any:
        grown.append((problem, *grow(self, problem)))
        return grown[-1][1:]

    Experts._grow = kept
    try:
        with Watched() as watched:
            estimator.fit(train.X, train.y, **({} if train.qid is None else {"qid": train.qid}))
    finally:
        Experts._grow = grow
    problem, family, units = grown[0]
    grower, loss, costs = family.grower, problem.loss, problem.costs
    constant = grower.boosting.constant
    unit = costs.unit_of_weight(grower.risk(np.tile(constant, (len(grower.rows), 1))))
    X, y = np.vstack([part.X for part in judges]), np.concatenate([part.y for part in judges])
    y = np.searchsorted(estimator.classes_, y) if loss.has_classes else (y - units.offset) / units.scale
    found: dict[str, list[float]] = {}
    for promise, make in PROMISES.items():
        best = make(loss, constant, watched.margins, grower.rows)
        expected = Expectation(grower.stakes, best, grower.rows)
        plain = [chain_module._chain(*given[:2], expected, *given[3:]) for given in watched.chains]
        for name, chains in ((promise, plain), (f"{promise}, shifted", [chain.shifted() for chain in plain])):
            for power in POWERS:
                cost_weight = unit * 0.5**power
                policies = _policies(chains, cost_weight)
                number = min(policies, key=lambda each: policies[each].loss)
                nodes = Nodes.chain(chains[number].experts, policies[number], costs)
                model = build_tree(
                    nodes.shape,
                    scores_of(nodes.experts, problem.boosting),
                    nodes.routes,
                    constant=constant,
                    costs=costs,
                    link=loss.link,
                    schema=problem.schema,
                )
                margins, paid = model.decision_and_cost(X)
                found.setdefault(name, []).append(loss.risk(margins, y) + cost_weight * float(np.mean(paid)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the data sets")
    parser.add_argument("--sets", nargs="+", choices=list(STATES), default=list(STATES))
    parser.add_argument("--states", type=int, help="random states for each set (default: 8 of small sets, 1 or 2)")
    options = parser.parse_args()
    if not options.data.is_dir():
        parser.error("--data must name the folder with the data sets")
    warnings.filterwarnings("ignore", category=UserWarning)
    print(
        f"{datetime.date.today()}, {platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, cstc {cstc.__version__}, LightGBM {lightgbm.__version__}\n"
    )
    print("| set | states | expected by | difference to one, % | standard error | small weights | large weights |")
    print("|---|---|---|---|---|---|---|")
    for name in options.sets:
        n_states = options.states or STATES[name]
        data = SETS[name].load(options.data / name)
        states = [run(data, state) for state in range(n_states)]
        known = np.array([state["one"] for state in states])
        for promise in list(states[0])[1:]:
            differences = 100 * (np.array([state[promise] for state in states]) / known - 1)
            means = differences.mean(axis=1)
            error = f"{means.std(ddof=1) / np.sqrt(n_states):.2f}" if n_states > 1 else "-"
            small, large = differences[:, 6:].mean(), differences[:, :6].mean()
            print(
                f"| {name} | {n_states} | {promise} | {means.mean():+.2f} | {error} | {small:+.2f} | {large:+.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
