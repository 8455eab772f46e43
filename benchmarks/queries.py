"""Cost at equal NDCG@5 of gates that see whole queries, over the same rankers whose gates see rows alone.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/queries.py                       # Yahoo-like; resumed if stopped
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/queries.py --data PATH           # and the five rotations of MQ2007
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/queries.py --data PATH --sets mq2007_partial --states 2 --weights 8
    .venv/bin/python benchmarks/queries.py --report                                # the table of what is finished

MQ2007 and its rotations are those of ``ahead.py``: three parts teach, one chooses, one judges.  The Yahoo-like set is
``make_yahoo_like``: 700 queries teach, 200 choose, and 500 fresh ones of the same draw judge.  For each state there is
one ``Frontier`` of ``CSTCRanker`` and one of ``CSTCRanker(whole_queries=True)``, of --weights cost weights each, with
``objective="regression"`` unless --objective says otherwise, and without fallbacks, which cost nothing here.

The measure is that of ``ahead.py``, with the ranker that sees rows alone in the place of CEGB: test cost at the first
budget at which the mean curve over states reaches a target, a share of the lift of the full model (of the least cost
weight, gates that see rows alone) over random order.  Below 1, whole queries are cheaper.

Delete --cache after a change of the method: finished states are not measured again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

import ahead
from ahead import Data, Measure, baseline_quality, geometric, quality
from cstc import CSTCRanker, Experts, Frontier
from cstc.datasets import make_yahoo_like

TAUGHT, CHOSEN, JUDGED = 700, 200, 500  # queries of the Yahoo-like set
STATES = {"yahoo_like": 1, "mq2007_partial": 5}
ARMS = {"rows": False, "queries": True}


def parts_of(name: str, folder: Path | None, state: int) -> list[Data]:
    """Rows that teach, choose and judge."""
    if name != "yahoo_like":
        assert folder is not None
        return ahead.SETS[name].load(folder / name).split(state)
    X, y, qid, costs = make_yahoo_like(TAUGHT + CHOSEN + JUDGED, random_state=state)
    prices = costs.resolve([f"x{j}" for j in range(X.shape[1])]).prices
    data, ends = Data(X, y, prices, "ranking", qid), np.cumsum([TAUGHT, CHOSEN, JUDGED])
    which = np.searchsorted(ends, qid)  # queries are numbered from 1
    return [data.take(np.flatnonzero(which == part)) for part in range(3)]


def points_of(parts: list[Data], state: int, whole: bool, n_weights: int, objective: str) -> list[dict]:
    train, validation, test = parts
    estimator = CSTCRanker(
        costs=train.costs,
        method=Experts(fallbacks=False),
        whole_queries=whole,
        objective=objective,
        random_state=state,
        n_jobs=1,
    )
    given = {"qid": train.qid, "X_val": validation.X, "y_val": validation.y, "qid_val": validation.qid}
    frontier = Frontier(estimator, n_weights=n_weights).fit(train.X, train.y, **given)
    points = []
    for row, model in zip(frontier.tried_, frontier.tried_models_, strict=True):
        margins, cost = model.model_.decision_and_cost(test.X, qid=test.qid)
        judged = {"test_quality": quality(test, margins), "test_cost": float(cost.mean())}
        seen = {"validation_quality": row["validation_quality"], "validation_cost": row["mean_cost"]}
        points.append(judged | seen | {"cost_weight": row["cost_weight"], "nodes": row["nodes"]})
    return points


def run_state(name: str, folder: Path | None, state: int, n_weights: int, objective: str) -> dict:
    parts = parts_of(name, folder, state)
    found: dict = {"n_rows": sum(len(part.y) for part in parts), "constant": baseline_quality(parts[2])}
    for arm, whole in ARMS.items():
        started = time.perf_counter()
        found[arm] = points_of(parts, state, whole, n_weights, objective)
        found[f"{arm}_seconds"] = time.perf_counter() - started
    return found | {"date": datetime.date.today().isoformat(), "versions": _versions()}


def _versions() -> dict[str, str]:
    return {"Python": platform.python_version()} | {name: version(name) for name in ("numpy", "lightgbm")}


def as_measured(state: dict) -> dict:
    """A state as `ahead.Measure` reads it: what sees rows alone in the place of CEGB."""
    full = min(state["rows"], key=lambda point: point["cost_weight"])
    return {"full": full, "constant": state["constant"], "cegb": state["rows"], "cstc": state["queries"]}


def report(cache: Path) -> dict:
    result = {}
    for name in STATES:
        states = [json.loads(path.read_text()) for path in sorted(cache.glob(f"{name}-*.json"))]
        if not states:
            continue
        measure = Measure([as_measured(state) for state in states])
        every = np.arange(len(states))
        ratios = measure.ratios(every)
        rng = np.random.default_rng(0)
        drawn = [geometric(measure.ratios(rng.integers(len(states), size=len(states)))) for _ in range(1000)]
        low, high = np.quantile(drawn, [0.025, 0.975])
        told = ", ".join(f"{what} {number}" for what, number in states[0]["versions"].items())
        print(f"{name}: {states[0]['n_rows']} rows, {len(states)} states, {states[0]['date']}, {told}")
        print("  target          " + "  ".join(f"{target:8.0%}" for target in ahead.TARGETS))
        for arm, who in (("rows alone", "cegb"), ("whole queries", "cstc")):
            print(f"  {arm:15s} " + "  ".join(f"{cost:8.2f}" for cost in measure.costs(who, every)))
        print("  ratio           " + "  ".join(f"{ratio:8.2f}" for ratio in ratios))
        seconds = [sum(state[f"{arm}_seconds"] for state in states) for arm in ARMS]
        longer = seconds[1] / seconds[0]
        print(f"  geometric mean {geometric(ratios):.3f} ({low:.2f} - {high:.2f}), time {longer:.1f} x")
        result[name] = {"ratios": ratios.tolist(), "mean": geometric(ratios), "interval": [float(low), float(high)]}
    if not result:
        raise SystemExit(f"nothing is finished in {cache}; run without --report first")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the data sets, for MQ2007")
    parser.add_argument("--sets", nargs="+", choices=list(STATES), help="default: Yahoo-like, and MQ2007 with --data")
    parser.add_argument("--states", type=int, help="states of each set (default: 1, five rotations of MQ2007)")
    parser.add_argument("--weights", type=int, default=24, help="cost weights of a frontier")
    parser.add_argument("--objective", choices=("auto", "regression", "lambdarank"), default="regression")
    parser.add_argument("--cache", type=Path, default=Path("out/queries"), help="where finished states are kept")
    parser.add_argument("--report", action="store_true", help="only print the table of what is finished")
    arguments = parser.parse_args()
    if not arguments.report:
        names = arguments.sets or [name for name in STATES if name == "yahoo_like" or arguments.data is not None]
        if "mq2007_partial" in names and (arguments.data is None or not arguments.data.is_dir()):
            parser.error("MQ2007 needs --data, the folder with the data sets")
        arguments.cache.mkdir(parents=True, exist_ok=True)
        for name in names:
            for state in range(arguments.states or STATES[name]):
                path = arguments.cache / f"{name}-{state:02d}.json"
                if path.exists():
                    continue
                found = run_state(name, arguments.data, state, arguments.weights, arguments.objective)
                unfinished = path.with_suffix(".part")
                unfinished.write_text(json.dumps(found))
                os.replace(unfinished, path)
                seconds = ", ".join(f"{arm} {found[f'{arm}_seconds']:.0f} s" for arm in ARMS)
                print(f"{name}, state {state}: {seconds}", flush=True)
    result = report(arguments.cache)
    (arguments.cache / "table.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
