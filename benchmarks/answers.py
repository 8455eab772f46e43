"""What a model answers when sources are dead or budgets are hard, beside models that were trained for that.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/answers.py --data PATH        # all sets; hours, resumed if stopped
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/answers.py --data PATH --sets heart_cleveland --states 3
    .venv/bin/python benchmarks/answers.py --report --out FILE                  # the table of what is finished

Data, splits and measures of quality are those of ``ahead.py``.  Of a ``Frontier`` with defaults, the model is the
cheapest, by mean cost of the validation rows, of those that reach 95% of the lift there: of the best validation quality
over that of a constant (of random order for ranking).

Outages
    Each source in turn is dead for all rows, and the model answers with ``unavailable=[source]``.  The reference is a
    ``Frontier`` that is trained without the columns of that source: of its models whose mean cost of the validation
    rows is at most that of the model without the source, the one with the best validation quality.  A frontier has
    gaps, and where its next model costs just a little more, this reference is a weak one.  So there are two more: with
    the cheapest of the models that cost too much allowed, and with all models allowed.  Sources are the groups of equal
    prices for nhanes_classes, the ten columns that most training rows buy for mslr_sample, and single columns else.  A
    source of which no training row and no test row buys anything changes nothing: it is left out of all means.
Budgets
    The model answers with ``budget=b``, for a tenth, a quarter and a half of its mean cost of the test rows.  The
    reference: of the models of the same frontier of which no test row pays more than `b`, the one with the best
    validation quality, or the constant if there is none.  That no row of the model pays more than `b` is asserted.

*Before* is what models did that had no fallbacks: a row whose next gate or expert needs what is dead, or costs more
than is left, is answered by the last node on its path whose expert needs nothing that is not bought, or else by the
constant.  What a gate or an expert needs is what is on the branches that the row takes.

Fit times are CPU seconds of one fit at the cost weight of the model, with and without ``Experts(fallbacks=False)``, and
sizes are those of the files that ``cstc.save`` writes of the two.

Finished sources are kept in --cache; delete it after a change of the method.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import lightgbm
import numpy as np
import sklearn

import ahead
import cstc
from ahead import Data
from cstc.model import FittedTree
from cstc.model.outages import experts_without
from cstc.model.pool import unpack_items

SETS = {"heart_cleveland": 20, "nhanes_classes": 5, "ann_thyroid": 5, "mslr_sample": 5}  # and how many states
LIFT = 0.95
SHARES = (0.1, 0.25, 0.5)  # of the model's mean cost
MOST_BOUGHT = 10
WITHIN = 0.01
ROWS = 256  # in one block
FOUND = ("quality", "cost")

# ------------------------------------------------------------------------------------------------ models


def sources_of(name: str, data: Data) -> dict[str, list[int]] | None:
    """What is given to the method; None: every column is a source."""
    if name != "nhanes_classes":
        return None
    return {f"price {price:g}": np.flatnonzero(data.prices == price).tolist() for price in np.unique(data.prices)}


def estimator_for(data: Data, state: int, method: cstc.Experts, **options):
    if data.categorical:
        options["categorical_features"] = data.categorical
    return ahead.ESTIMATORS[data.task](costs=data.costs, random_state=state, n_jobs=1, method=method, **options)


def fit_frontier(train: Data, validation: Data, state: int, method: cstc.Experts) -> cstc.Frontier:
    queries = {} if train.qid is None else {"qid": train.qid, "qid_val": validation.qid}
    frontier = cstc.Frontier(estimator_for(train, state, method))
    return frontier.fit(train.X, train.y, X_val=validation.X, y_val=validation.y, **queries)


def dropped(data: Data, columns: np.ndarray) -> Data:
    """The same rows without some columns."""
    assert data.bill is None
    kept = np.setdiff1d(np.arange(data.X.shape[1]), columns)
    categorical = np.flatnonzero(np.isin(kept, data.categorical)).tolist()
    return replace(data, X=data.X[:, kept], prices=data.prices[kept], categorical=categorical)


def chosen(frontier: cstc.Frontier, validation: Data) -> int:
    """The model: its number among all that were tried."""
    qualities = [row["validation_quality"] for row in frontier.tried_]
    constant = ahead.baseline_quality(validation)
    enough = constant + LIFT * (max(qualities) - constant)
    good = [number for number, quality in enumerate(qualities) if quality >= enough]
    return min(good, key=lambda number: frontier.tried_[number]["mean_cost"])


def judged(data: Data, margins: np.ndarray, cost: np.ndarray) -> dict[str, float]:
    return {"quality": ahead.quality(data, margins), "cost": float(cost.mean())}


def best_of(frontier: cstc.Frontier, numbers: list[int], test: Data) -> dict:
    """How the model that validation data prefers does on test data; that is the constant where there is none."""
    if not numbers:
        return {"quality": ahead.baseline_quality(test), "cost": 0.0, "model": None}
    best = max(numbers, key=lambda number: frontier.tried_[number]["validation_quality"])
    return judged(test, *frontier.tried_models_[best].model_.decision_and_cost(test.X)) | {"model": best}


# ------------------------------------------------------------------------------------------------ before


@dataclass(frozen=True, eq=False)
class Walks:
    """All that rows may meet on their ways, whether they come there or not."""

    model: FittedTree
    goes_up: np.ndarray  # bool (n_nodes, n)
    margins: np.ndarray  # (n_nodes, n, n_outputs)
    gates: np.ndarray  # bool (n_nodes, n, n_items): what the branches of a gate need
    experts: np.ndarray  # the same for the experts of the nodes

    @classmethod
    def of(cls, model: FittedTree, X: np.ndarray) -> Walks:
        assert model.costs.evaluation == 0
        pool, nodes = model.pool, range(model.shape.n_nodes)
        goes_up = np.array([pool.scores(X, model.route_weights[:, [k]])[:, 0] > model.thresholds[k] for k in nodes])
        margins = np.array([pool.scores(X, model.predict_weights[:, k]) for k in nodes])
        gates, experts = np.zeros((2, len(nodes), len(X), model.costs.n_items), dtype=bool)
        bits = pool.position_bits(model.costs.feature_items)
        for start in range(0, len(X), ROWS):
            at = slice(start, start + ROWS)
            met = bits[pool.leaves(X[at], np.arange(pool.n_learners))]  # (rows, learners, words)
            for found, learners in ((gates, model.route_learners), (experts, model.predict_learners)):
                for k in nodes:
                    words = np.bitwise_or.reduce(met[:, learners[k]], axis=1)
                    found[k, at] = unpack_items(words, model.costs.n_items)
        return cls(model, goes_up, margins + model.predict_intercepts[:, None], gates, experts)

    def answers(self, dead: np.ndarray, budget: float = np.inf) -> np.ndarray:
        """Margins without fallbacks, when some items, bool (n_items,), are dead and rows may pay so much."""
        shape, n = self.model.shape, self.goes_up.shape[1]
        margins = np.tile(self.model.constant, (n, 1))
        for row in range(n):
            bought, node, path = np.zeros(len(dead), dtype=bool), 0, []
            while True:
                path.append(node)
                if not shape.is_leaf[node]:
                    with_gate = bought | self.gates[node, row]
                    if not self._can_have(with_gate, dead, budget):
                        break
                    bought = with_gate
                    child = int(shape.upper[node] if self.goes_up[node, row] else shape.lower[node])
                    if child >= 0:
                        node = child
                        continue
                with_expert = bought | self.experts[node, row]
                if self._can_have(with_expert, dead, budget):
                    bought = with_expert
                break
            for last in reversed(path):
                if not (self.experts[last, row] & ~bought).any():
                    margins[row] = self.margins[last, row]
                    break
        return margins

    def _can_have(self, items: np.ndarray, dead: np.ndarray, budget: float) -> bool:
        return not (items & dead).any() and float(self.model.costs.bills(items[None])[0]) <= budget


# ------------------------------------------------------------------------------------------------ measuring


@dataclass(frozen=True, eq=False)
class Trial:
    """One set, one state: the frontier, its model and what rows may meet there."""

    name: str
    state: int
    parts: list[Data]  # train, validation, test
    frontier: cstc.Frontier
    number: int  # of the model

    @classmethod
    def of(cls, name: str, state: int, data: Data) -> Trial:
        parts = data.split(state)
        frontier = fit_frontier(parts[0], parts[1], state, cstc.Experts(sources=sources_of(name, data)))
        return cls(name, state, parts, frontier, chosen(frontier, parts[1]))

    @property
    def model(self) -> FittedTree:
        return self.frontier.tried_models_[self.number].model_

    def sources(self) -> dict[str, np.ndarray]:
        """Those that are looked at, with their columns."""
        model = self.model
        assert model.estimates is not None
        bought = [model.bought_items(part.X) for part in (self.parts[0], self.parts[2])]
        how_often = bought[0].sum(axis=0)
        found = {}
        for name, columns in zip(model.estimates.source_names, model.estimates.source_features, strict=True):
            items = model.costs.feature_items[columns].any(axis=0)
            if any(rows[:, items].any() for rows in bought):
                found[name] = np.flatnonzero(columns)
        if self.name == "mslr_sample":
            often = sorted(found, key=lambda name: -int(how_often[found[name][0]]))
            found = {name: found[name] for name in often[:MOST_BOUGHT]}
        return found

    def outage(self, source: str, columns: np.ndarray, walks: Walks) -> dict:
        model = self.model
        train, validation, test = self.parts
        gone = np.isin(np.arange(train.X.shape[1]), columns)
        ours = judged(test, *model.decision_and_cost(test.X, unavailable=[source]))
        may_cost = float(model.predict_cost(validation.X, unavailable=[source]).mean())
        parts = [dropped(part, columns) for part in self.parts]
        frontier = fit_frontier(parts[0], parts[1], self.state, cstc.Experts(fallbacks=False))
        by_cost = sorted(range(len(frontier.tried_)), key=lambda number: frontier.tried_[number]["mean_cost"])
        n_affordable = sum(row["mean_cost"] <= may_cost * (1 + 1e-9) for row in frontier.tried_)
        return {
            "source": source,
            "columns": len(columns),
            "bought": float(model.bought_items(test.X)[:, self._items(columns)].any(axis=1).mean()),
            "ours": ours,
            "validation_cost": may_cost,
            "reference": best_of(frontier, by_cost[:n_affordable], parts[2]),
            "one more": best_of(frontier, by_cost[: n_affordable + 1], parts[2]),
            "whatever the cost": best_of(frontier, by_cost, parts[2]),
            "before": ahead.quality(test, walks.answers(self._items(columns))),
            "experts": experts_without(model, gone)[0].tolist(),
        }

    def _items(self, columns: np.ndarray) -> np.ndarray:
        return self.model.costs.feature_items[columns].any(axis=0)

    def budgets(self, walks: Walks) -> list[dict]:
        test, model = self.parts[2], self.model
        mean = float(model.predict_cost(test.X).mean())
        most = [float(each.model_.predict_cost(test.X).max()) for each in self.frontier.tried_models_]
        found = []
        for share in SHARES:
            budget = share * mean
            margins, cost = model.decision_and_cost(test.X, budget=budget)
            assert (cost <= budget).all(), f"a row pays {cost.max()}, and the budget is {budget}"
            affordable = [number for number, largest in enumerate(most) if largest <= budget]
            found.append(
                {
                    "share": share,
                    "budget": budget,
                    "ours": judged(test, margins, cost),
                    "reference": best_of(self.frontier, affordable, test),
                    "before": ahead.quality(test, walks.answers(np.zeros(model.costs.n_items, dtype=bool), budget)),
                }
            )
        return found

    def price_of_fallbacks(self) -> dict[str, list[float]]:
        """CPU seconds of a fit and bytes of a file, with fallbacks and without."""
        train = self.parts[0]
        weight = self.frontier.tried_[self.number]["cost_weight"]
        queries = {} if train.qid is None else {"qid": train.qid}
        seconds: list[list[float]] = [[], []]
        size = [0.0, 0.0]
        while not seconds[0] or (len(seconds[0]) < 5 and sum(seconds[0]) < 3.0):
            for which, wanted in enumerate((True, False)):
                method = cstc.Experts(sources=sources_of(self.name, train), fallbacks=wanted)
                estimator = estimator_for(train, self.state, method, cost_weight=weight)
                began = time.process_time()
                estimator.fit(train.X, train.y, **queries)
                seconds[which].append(time.process_time() - began)
                with tempfile.TemporaryDirectory() as folder:
                    cstc.save(estimator, Path(folder) / "model.cstc")
                    size[which] = (Path(folder) / "model.cstc").stat().st_size
        return {"seconds": [statistics.median(each) for each in seconds], "bytes": size}


def measure(name: str, state: int, data: Data, cache: Path) -> Iterator[str]:
    """All that is missing in the cache; says what it does."""
    path = cache / f"{name}-{state:02d}.json"
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
        if all(_path_of(cache, name, state, source).exists() for source in known["sources"]):
            return
    began = time.perf_counter()
    trial = Trial.of(name, state, data)
    model, test = trial.model, trial.parts[2]
    walks = Walks.of(model, test.X)
    margins, cost = model.decision_and_cost(test.X)
    nothing = np.zeros(model.costs.n_items, dtype=bool)
    assert np.allclose(walks.answers(nothing), margins), "rows that meet no trouble are answered as always"
    sources = trial.sources()
    if not path.exists():
        found = {
            "model": judged(test, margins, cost),
            "constant": ahead.baseline_quality(test),
            "nodes": model.shape.n_nodes,
            "fallbacks": model.fallback_weights.shape[1],
            "sources": list(sources),
            "budgets": trial.budgets(walks),
            **trial.price_of_fallbacks(),
        }
        _write(path, found)
    yield f"{name}, state {state}: model {model}, {time.perf_counter() - began:.0f} s"
    for source, columns in sources.items():
        path = _path_of(cache, name, state, source)
        if not path.exists():
            began = time.perf_counter()
            found = trial.outage(source, columns, walks)
            _write(path, found)
            ours, reference = found["ours"], found["reference"]
            yield (
                f"  without {source}: {ours['quality']:.4f} for {ours['cost']:.2f}, reference "
                f"{reference['quality']:.4f} for {reference['cost']:.2f}, before {found['before']:.4f}, "
                f"experts {found['experts']}, {time.perf_counter() - began:.0f} s"
            )


def _path_of(cache: Path, name: str, state: int, source: str) -> Path:
    return cache / f"{name}-{state:02d}-{re.sub('[^A-Za-z0-9.]+', '_', source)}.json"


def _write(path: Path, found: dict) -> None:
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(found, indent=1), encoding="utf-8")
    os.replace(unfinished, path)


# ------------------------------------------------------------------------------------------------ the table


def collected(cache: Path, name: str) -> list[dict]:
    """The states of a set, each with the outages that are finished."""
    states = []
    for path in sorted(cache.glob(f"{name}-[0-9][0-9].json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        outages = [_path_of(cache, name, int(path.stem[-2:]), source) for source in found["sources"]]
        found["outages"] = [json.loads(each.read_text(encoding="utf-8")) for each in outages if each.exists()]
        states.append(found)
    return states


def _line(what: list[str], cases: list[list[dict]]) -> str:
    """Cases of each state: means over cases, then over states, with the standard error of the difference."""
    cases = [each for each in cases if each]
    columns = [
        [np.mean([case["ours"]["quality"] for case in each]) for each in cases],
        [np.mean([case["reference"]["quality"] for case in each]) for each in cases],
        [np.mean([case["before"] for case in each]) for each in cases],
        [np.mean([case["ours"]["cost"] for case in each]) for each in cases],
        [np.mean([case["reference"]["cost"] for case in each]) for each in cases],
    ]
    ours, reference, before, our_cost, their_cost = (float(np.mean(each)) for each in columns)
    apart = np.array(columns[0]) - np.array(columns[1])
    error = f" ± {apart.std(ddof=1) / np.sqrt(len(apart)):.4f}" if len(apart) > 1 else ""
    verdict = "yes" if apart.mean() >= -WITHIN else "NO"
    numbers = [f"{ours:.4f}", f"{reference:.4f}", f"{apart.mean():+.4f}{error}", verdict, f"{before:.4f}"]
    numbers += [f"{our_cost:.2f}", f"{their_cost:.2f}"]
    for further in ("one more", "whatever the cost"):
        if further in cases[0][0]:
            means = np.mean(
                [[np.mean([case[further][key] for case in each]) for key in FOUND] for each in cases], axis=0
            )
            numbers.append("{:.4f} for {:.2f}".format(*means))
    return "| " + " | ".join([*what, *numbers]) + " |"


def report(cache: Path) -> list[str]:
    sets = {name: states for name in SETS if (states := collected(cache, name))}
    if not sets:
        raise SystemExit(f"nothing is finished in {cache}; run with --data PATH first")
    columns = "quality | reference | difference | within 0.01 | before | mean cost | reference's"
    ruler = "|---" * 7 + "|"
    lines = [
        f"{datetime.date.today()}, {platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, cstc {cstc.__version__}, numpy {np.__version__}, "
        f"LightGBM {lightgbm.__version__}, scikit-learn {sklearn.__version__}",
        "",
        "| set | states | quality of the model | its mean cost | nodes | fallbacks | fit, CPU s | without | ratio "
        "| file, kB | without | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, states in sets.items():

        def middle(what, states=states) -> float:
            return statistics.median(what(state) for state in states)

        def mean(what, states=states) -> float:
            return statistics.mean(what(state) for state in states)

        lines.append(
            f"| {name} | {len(states)} | {mean(lambda s: s['model']['quality']):.4f} "
            f"| {mean(lambda s: s['model']['cost']):.2f} | {mean(lambda s: s['nodes']):.1f} "
            f"| {mean(lambda s: s['fallbacks']):.1f} "
            f"| {middle(lambda s: s['seconds'][0]):.2f} | {middle(lambda s: s['seconds'][1]):.2f} "
            f"| {middle(lambda s: s['seconds'][0] / s['seconds'][1]):.2f} "
            f"| {middle(lambda s: s['bytes'][0]) / 1e3:.1f} | {middle(lambda s: s['bytes'][1]) / 1e3:.1f} "
            f"| {middle(lambda s: s['bytes'][0] / s['bytes'][1]):.2f} |"
        )
    lines += ["", "Each source in turn dead for all rows", ""]
    further = "with the next more expensive model | whatever the cost"
    lines += [f"| set | states | outages | {columns} | {further} |", f"|---|---|---|---|---{ruler}"]
    for name, states in sets.items():
        cases = [state["outages"] for state in states]
        if any(cases):
            n_states = sum(map(bool, cases))
            lines.append(_line([name, str(n_states), str(sum(map(len, cases)))], cases))
    lines += ["", "Hard budgets", "", f"| set | states | of the mean cost | {columns} |", f"|---|---|---{ruler}"]
    for name, states in sets.items():
        for number, share in enumerate(SHARES):
            cases = [[state["budgets"][number]] for state in states]
            lines.append(_line([name, str(len(states)), f"{share:g}"], cases))
    lines += ["", "By source", "", f"| set | states | source | {columns} | {further} |", f"|---|---|---|---|---{ruler}"]
    for name, states in sets.items():
        names = dict.fromkeys(outage["source"] for state in states for outage in state["outages"])
        for source in sorted(names, key=lambda source: [int(n) for n in re.findall("[0-9]+", source)]):
            cases = [[outage for outage in state["outages"] if outage["source"] == source] for state in states]
            lines.append(_line([name, str(sum(map(len, cases))), source], cases))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the data sets")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--states", type=int, help="random states for each set (default: 5, or 20 for heart_cleveland)")
    parser.add_argument("--cache", type=Path, default=Path("out/answers"), help="where finished sources are kept")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    parser.add_argument("--report", action="store_true", help="only print the table of what is finished")
    options = parser.parse_args()
    if not options.report:
        if options.data is None or not options.data.is_dir():
            parser.error("--data must name the folder with the data sets")
        options.cache.mkdir(parents=True, exist_ok=True)
        warnings.simplefilter("ignore", cstc.UnseenValueWarning)
        # state by state over all sets, so that an early table already has them all
        for state in range(options.states or max(SETS[name] for name in options.sets)):
            for name in options.sets:
                if state < (options.states or SETS[name]):
                    data = ahead.SETS[name].load(options.data / name)
                    for text in measure(name, state, data, options.cache):
                        print(text, flush=True)
    lines = report(options.cache)
    print("\n".join(lines))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
