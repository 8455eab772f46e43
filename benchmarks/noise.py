"""Choosing under noise: the cheapest model with 99% of the full model's quality, by the old rule and by the new one.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/noise.py --data PATH            # all sets; resumed if stopped
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/noise.py --data PATH --sets hepatitis --states 3
    .venv/bin/python benchmarks/noise.py --report                                 # the table of what is finished

On the small and the ranking sets of `ahead.py`, with its splits, a `Frontier` is fitted once for each state (parts in
turn for MQ2007; of mslr_sample, which has one split, the state only seeds the method).  Both rules choose from its
models.

old     Quality is that of the validation rows.  Models that a cheaper one matches are dropped, and the cheapest one
        with 0.99 of the full model's quality is taken.
new     ``frontier.best(quality=0.99 * full)``: quality is that of validation rows and out-of-fold rows, and what the
        model lacks, plus one standard error, must be within what is allowed.

Printed for each set: test quality by both rules and the new less the old one, with its standard error over states
(and, in brackets, that of one state over test rows or queries: all that there is where states share their test rows);
cost of the new one over that of the old one; and what `table_` promised less what test rows show, as a mean over states
and as a mean of its size, beside the size that the noise of the test rows alone would have (0.8 standard errors): no
promise can come nearer.  Delete --cache after a change of the method: finished states are not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

from ahead import ESTIMATORS, SETS, Data, geometric
from cstc import Frontier
from cstc.metrics import quality_of
from cstc.resampling import Resamples, standard_error
from cstc.rows import Rows

NAMES = ("heart_cleveland", "hepatitis", "pima_diabetes", "pima_blood_draw", "mq2007_partial", "mslr_sample")
SHARE = 0.99


def old_rule(frontier: Frontier, wanted: float) -> int:
    """The number of the tried model that was taken before: validation rows alone, without standard errors."""
    kept: list[int] = []
    qualities = frontier.tried_.column("validation_quality")
    for number in np.lexsort((-qualities, frontier.tried_.column("mean_cost"))):
        if not kept or qualities[number] > qualities[kept[-1]]:
            kept.append(int(number))
    return next((number for number in kept if qualities[number] >= wanted), kept[-1])


def run_state(data: Data, state: int) -> dict:
    train, validation, test = data.split(state)
    estimator = ESTIMATORS[train.task](costs=train.costs, random_state=state, n_jobs=1)
    queries = {} if train.qid is None else {"qid": train.qid, "qid_val": validation.qid}
    started = time.perf_counter()
    frontier = Frontier(estimator).fit(train.X, train.y, X_val=validation.X, y_val=validation.y, **queries)
    seconds = time.perf_counter() - started

    tried = frontier.tried_
    full = int(np.flatnonzero(tried.column("cost_weight") == 0)[0])
    old = old_rule(frontier, SHARE * tried[full]["validation_quality"])
    taken = frontier.best(quality=SHARE * tried[full]["quality"])
    new = next(number for number, model in enumerate(frontier.tried_models_) if model is taken)

    rows, judged = Rows(test.X, test.y, None, test.qid), quality_of(None, estimator)[1]
    resamples = Resamples.of(len(test.y), None, test.qid)
    found: dict = {"seconds": seconds, "rows": len(data.y)}
    draws = {}
    for rule, number, promised in (
        ("old", old, "validation_quality"),
        ("new", new, "quality"),
        ("full", full, "validation_quality"),
    ):
        model = frontier.tried_models_[number]
        margins, costs = model.model_.decision_and_cost(test.X)
        draws[rule] = judged.draws(model, rows, margins, resamples)
        found[rule] = {
            "quality": judged(model, rows, margins),
            "cost": float(costs.mean()),
            "promised": tried[number][promised],
        }
    found["test_error"] = standard_error(draws["new"] - draws["old"])
    found["test_noise"] = standard_error(draws["new"])
    return found


def error_of(values: np.ndarray) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def report(cache: Path, names: list[str]) -> None:
    print(
        f"{'set':16s} {'states':>6s}  {'full':>6s} {'old':>6s} {'new':>6s}  {'new - old':>17s} {'(test rows)':>11s}"
        f"  {'cost, new/old':>13s}  {'promised - test, old and new':>28s}  {'its size':>14s}  {'least':>6s}"
    )
    means = []
    for name in names:
        states = [json.loads(path.read_text()) for path in sorted(cache.glob(f"{name}-*.json"))]
        if not states:
            continue
        of = {
            rule: {key: np.array([state[rule][key] for state in states]) for key in ("quality", "cost", "promised")}
            for rule in ("old", "new", "full")
        }
        gained = of["new"]["quality"] - of["old"]["quality"]
        gaps = [of[rule]["promised"] - of[rule]["quality"] for rule in ("old", "new")]
        ratio = of["new"]["cost"].mean() / of["old"]["cost"].mean()
        sizes = [np.abs(gap).mean() for gap in gaps]
        one = np.mean([state["test_error"] for state in states])
        least = np.sqrt(2 / np.pi) * np.mean([state["test_noise"] for state in states])
        print(
            f"{name:16s} {len(states):6d}  "
            + " ".join(f"{of[rule]['quality'].mean():6.4f}" for rule in ("full", "old", "new"))
            + f"  {gained.mean():+.4f} ± {error_of(gained):6.4f} {f'({one:.4f})':>11s}  {ratio:13.2f}"
            + f"  {gaps[0].mean():+13.4f} {gaps[1].mean():+14.4f}  {sizes[0]:6.4f} {sizes[1]:7.4f}  {least:6.4f}"
        )
        means.append([gained.mean(), ratio, gaps[0].mean(), gaps[1].mean(), *sizes])
    if not means:
        raise SystemExit(f"nothing is finished in {cache}; run with --data PATH first")
    gained, ratios, *promises = np.array(means).T
    print(
        f"mean over {len(means)} sets: new - old {gained.mean():+.4f}, cost {geometric(ratios):.2f} (geometric), "
        f"promised - test {promises[0].mean():+.4f} and {promises[1].mean():+.4f}, "
        f"its size {promises[2].mean():.4f} and {promises[3].mean():.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the data sets")
    parser.add_argument("--sets", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--states", type=int, help="random states for each set (default: 20, or 5 for ranking)")
    parser.add_argument("--cache", type=Path, default=Path("out/noise"), help="where finished states are kept")
    parser.add_argument("--report", action="store_true", help="only print the table of what is finished")
    arguments = parser.parse_args()
    if not arguments.report:
        if arguments.data is None or not arguments.data.is_dir():
            parser.error("--data must name the folder with the data sets")
        arguments.cache.mkdir(parents=True, exist_ok=True)
        for name in arguments.sets:
            data = SETS[name].load(arguments.data / name)
            for state in range(arguments.states or SETS[name].n_states):
                path = arguments.cache / f"{name}-{state:02d}.json"
                if path.exists():
                    continue
                found = run_state(data, state)
                unfinished = path.with_suffix(".part")
                unfinished.write_text(json.dumps(found))
                os.replace(unfinished, path)
                print(f"{name}, state {state}: {found['seconds']:.0f} s", flush=True)
    report(arguments.cache, arguments.sets)


if __name__ == "__main__":
    main()
