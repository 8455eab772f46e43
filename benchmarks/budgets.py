"""Whether budgets are met on new rows, and what they buy.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/budgets.py --data PATH           # all sets; hours, resumed if stopped
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/budgets.py --data PATH --sets pima_diabetes --states 3
    .venv/bin/python benchmarks/budgets.py --report                                # the table of what is finished

Data, splits and measures of quality are those of ``ahead.py``; scikit-learn's breast cancer, where each feature costs
1, comes with it.  Rows are split 80/20.  ``CSTCClassifier(mean_cost=b)`` is fitted to the 80%, for b of 5, 10, 20, 40
and 80% of the full cost.  ``Frontier`` has the same 80%, of which it holds out a fifth for choosing, and answers with
``best(mean_cost=b)``.  Both are measured on the other 20%.

met
    Mean cost of the test rows over b, averaged over states; where b is less than what the full model costs, it should
    be between 85 and 103%.
quality
    Of both on the test rows, averaged over states, and the paired standard error of the difference.
largest
    The largest cost of any test row with ``best(max_cost=b)``, over b: never above 100%.

Delete --cache after a change of the method: finished states are not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

import ahead
from ahead import Data
from cstc import CSTCClassifier, Frontier, Mixture, UnseenValueWarning
from cstc.rows import Rows

SHARES = (0.05, 0.1, 0.2, 0.4, 0.8)  # of the full cost
LEAST, MOST = 0.85, 1.03


def _breast_cancer(folder: Path) -> Data:
    X, y = load_breast_cancer(return_X_y=True)
    return Data(X, y, np.ones(X.shape[1]), "classes")


SETS = {name: ahead.SETS[name].load for name in ("heart_cleveland", "pima_diabetes", "nhanes_classes", "ann_thyroid")}
SETS["breast_cancer"] = _breast_cancer


def run_state(data: Data, state: int) -> dict:
    """Both at all budgets, for one split."""
    train, validation, test = data.split(state)
    X, y = np.concatenate([train.X, validation.X]), np.concatenate([train.y, validation.y])
    given = {"costs": data.costs, "categorical_features": data.categorical or None, "random_state": state}
    full = float(data.prices.sum())
    found: dict = {"rows": len(data.y), "full": full, "budgets": []}
    started = time.process_time()
    frontier = Frontier(CSTCClassifier(**given)).fit(X, y)
    found["frontier_seconds"] = time.process_time() - started
    started = time.process_time()
    shared: dict = {}  # models of one state share their experts, as those of a frontier do; they are the same as alone
    for share in SHARES:
        asked = share * full
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # holes are what this is about
            ours = CSTCClassifier(mean_cost=asked, **given)
            ours._fit_rows(Rows(X, y), Rows(None, None), shared=shared)
            theirs, limited = frontier.best(mean_cost=asked), frontier.best(max_cost=asked)
        row = {"asked": asked, "is_mixture": isinstance(ours.model_, Mixture)}
        for name, model in (("ours", ours), ("frontier", theirs), ("limited", limited)):
            margins, costs = model.model_.decision_and_cost(test.X)
            row[name] = {
                "cost": float(costs.mean()),
                "largest": float(costs.max()),
                "quality": ahead.quality(test, margins),
            }
        found["budgets"].append(row)
    found["seconds"] = time.process_time() - started
    most = frontier.tried_models_[-1].model_.predict_cost(test.X).mean()
    return found | {"most": float(most)}


def report(cache: Path) -> dict:
    result: dict = {}
    heads = ("set", "states", "asked", "met", "", "cstc", "frontier", "difference", "error", "largest", "mixtures")
    print("{:17s}{:>7s}{:>10s}{:>8s}{:>5s}{:>9s}{:>10s}{:>12s}{:>9s}{:>9s}{:>10s}".format(*heads))
    for name in SETS:
        states = [json.loads(path.read_text()) for path in sorted(cache.glob(f"{name}-*.json"))]
        for at, share in enumerate(SHARES if states else ()):
            rows = [state["budgets"][at] for state in states]
            asked = rows[0]["asked"]
            met = np.array([row["ours"]["cost"] for row in rows]) / asked
            quality = np.array([[row[who]["quality"] for who in ("ours", "frontier")] for row in rows])
            difference = quality[:, 0] - quality[:, 1]
            error = float(difference.std(ddof=1) / len(rows) ** 0.5) if len(rows) > 1 else float("nan")
            largest = max(row["limited"]["largest"] for row in rows) / asked
            reachable = asked < np.mean([state["most"] for state in states])
            is_met = not reachable or LEAST <= met.mean() <= MOST
            result[f"{name} {share:.0%}"] = {
                "states": len(rows),
                "asked": asked,
                "met": float(met.mean()),
                "quality": quality.mean(axis=0).tolist(),
                "difference": float(difference.mean()),
                "error": error,
                "largest": largest,
            }
            n_mixtures = sum(row["is_mixture"] for row in rows)
            print(
                f"{name:17s}{len(rows):7d}{asked:10.2f}{met.mean():8.1%}{'' if is_met else 'no':>5s}"
                f"{quality[:, 0].mean():9.4f}{quality[:, 1].mean():10.4f}{difference.mean():12.4f}{error:9.4f}"
                f"{largest:9.1%}{n_mixtures:10d}"
            )
    if not result:
        raise SystemExit(f"nothing is finished in {cache}; run with --data PATH first")
    worse = [name for name, row in result.items() if row["difference"] < -row["error"]]
    print(f"quality below the frontier's by more than an error: {', '.join(worse) or 'nowhere'}")
    print(f"limits exceeded: {sum(row['largest'] > 1 for row in result.values())} of {len(result)}")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the data sets")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--states", type=int, default=20, help="random states for each set")
    parser.add_argument("--cache", type=Path, default=Path("out/budgets"), help="where finished states are kept")
    parser.add_argument("--report", action="store_true", help="only print the table of what is finished")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", UnseenValueWarning)  # some splits have all gaps of a column on one side
    if not arguments.report:
        if arguments.data is None or not arguments.data.is_dir():
            parser.error("--data must name the folder with the data sets")
        arguments.cache.mkdir(parents=True, exist_ok=True)
        for state in range(arguments.states):  # state by state, so that an early table already has all sets
            for name in arguments.sets:
                path = arguments.cache / f"{name}-{state:02d}.json"
                if path.exists():
                    continue
                found = run_state(SETS[name](arguments.data / name), state)
                unfinished = path.with_suffix(".part")
                unfinished.write_text(json.dumps(found))
                os.replace(unfinished, path)
                seconds = f"frontier {found['frontier_seconds']:.0f} s, mean_cost {found['seconds']:.0f} s"
                print(f"{name}, state {state}: {seconds}", flush=True)
    result = report(arguments.cache)
    (arguments.cache / "table.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
