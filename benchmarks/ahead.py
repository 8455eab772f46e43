"""Cost at equal quality, against LightGBM's cost-efficient gradient boosting (CEGB).

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/ahead.py --data PATH            # all sets; hours, resumed if stopped
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/ahead.py --data PATH --sets pima_diabetes --states 3
    .venv/bin/python benchmarks/ahead.py --report                                 # the table of what is finished
    .venv/bin/python benchmarks/ahead.py --cache NEW --against OLD                # our cost now over our cost then
    .venv/bin/python benchmarks/ahead.py --data PATH --engine xgboost             # experts and gates by XGBoost
    .venv/bin/python benchmarks/ahead.py --cache out/ahead/xgboost --against out/ahead    # their cost over LightGBM's

For a set and a random state, rows are split 60/20/20 (parts in turn for MQ2007, the given split for mslr_sample, where
the state only seeds the methods).  Both methods learn from the first part and have the second for choosing: early
stopping and budgets for CEGB, budgets alone for cstc, whose fits never see it.  CEGB is LightGBM with its own default
parameters (fewer rows in a leaf on sets so small that it could not split otherwise), both penalties on features, at 14
strengths each; cstc is ``Frontier`` of the estimator with its defaults, but without fallbacks, which are never asked
here.

For every budget at which either method can afford a further point, a method plays the point that validation data
prefers among those that it can afford (cost on validation data); test cost and test quality, averaged over states,
make its curve.  A target is a share of the lift of LightGBM without prices over a constant (over random order for
ranking); a method's cost at a target is the test cost at the first budget at which its curve reaches it, or the full
model's if it never does.  Costs below a thousandth of the full model's count as that much: a target that is met for
nothing has no ratio.  Both are charged by the same code for the items on the branches that a row takes.

Delete --cache after a change of the method: finished states are not measured again.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import lightgbm
import numpy as np
from sklearn.metrics import roc_auc_score

from cstc import CostModel, CSTCClassifier, CSTCRanker, CSTCRegressor, Experts, Frontier, from_lightgbm
from cstc.capacity import capacity_for
from cstc.metrics import ndcg
from cstc.model import probabilities

TARGETS = (0.80, 0.90, 0.95, 0.98, 0.99)
PARTS = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5)  # of the full cost, at which rankings are told
RANKINGS = {"mq2007_partial", "mslr_sample"}
STRENGTHS = np.geomspace(1.0, 1e-5, 14)  # 1: a typical feature costs all risk that the constant leaves
LARGE = 3000  # rows
PLAIN = {"learning_rate": 0.1, "deterministic": True, "force_row_wise": True, "num_threads": 1, "verbosity": -1}
#: What the experts of cstc are grown with, of fewer than 10,000 rows.
REGULARISED = {"max_depth": 4, "num_leaves": 16, "lambda_l2": 2.0, "bagging_fraction": 0.8, "bagging_freq": 1}
ESTIMATORS = {"classes": CSTCClassifier, "regression": CSTCRegressor, "ranking": CSTCRanker}

# ------------------------------------------------------------------------------------------------ data


@dataclass(frozen=True, eq=False)
class Data:
    X: np.ndarray
    y: np.ndarray
    prices: np.ndarray
    task: str
    qid: np.ndarray | None = None
    part: np.ndarray | None = None  # of MQ2007 (1 to 5) and of mslr_sample (0, 1, 2)
    categorical: list[int] = field(default_factory=list)
    bill: CostModel | None = None  # what is charged, where that is more than one price for each feature

    @property
    def costs(self):
        return self.prices if self.bill is None else self.bill

    @property
    def columns(self) -> list[str]:
        return [f"x{j}" for j in range(len(self.prices))]  # as the estimators call the columns of an array

    def take(self, at: np.ndarray) -> Data:
        qid = None if self.qid is None else self.qid[at]
        return Data(self.X[at], self.y[at], self.prices, self.task, qid, None, self.categorical, self.bill)

    def split(self, state: int) -> list[Data]:
        if self.part is not None and self.part.max() == 2:
            parts = [np.flatnonzero(self.part == number) for number in range(3)]
        elif self.part is not None:
            turn = (np.arange(5) + state) % 5 + 1
            parts = [np.flatnonzero(np.isin(self.part, turn[which])) for which in (slice(3), [3], [4])]
        else:
            order = np.random.default_rng(state).permutation(len(self.y))
            ends = [int(0.6 * len(order)), int(0.8 * len(order))]
            parts = [np.sort(part) for part in np.split(order, ends)]
        return [self.take(at) for at in parts]


def _arrays(folder: Path, name: str | None = None):
    return np.load(folder / f"{name or folder.name}.npz", allow_pickle=False)


def _classes(y: np.ndarray) -> np.ndarray:
    return np.unique(y, return_inverse=True)[1]


def _turney(folder: Path) -> Data:
    z = _arrays(folder)
    y = (z["y"] > 0).astype(int) if folder.name == "heart_cleveland" else _classes(z["y"])
    return Data(z["X"].astype(float), y, z["costs"].astype(float), "classes")


def _pima_bill(folder: Path) -> Data:
    data = _turney(folder.parent / "pima_diabetes")
    glucose, insulin, draw = 1, 4, 2.10
    items = {f"x{j}": float(price) for j, price in enumerate(data.prices)} | {"blood draw": draw}
    for j in (glucose, insulin):
        items[f"x{j}"] = round(items[f"x{j}"] - draw, 2)
    bill = CostModel(items, {f"x{j}": ["blood draw"] for j in (glucose, insulin)})
    return Data(data.X, data.y, data.prices, "classes", bill=bill)


def _thyroid(folder: Path) -> Data:
    z = _arrays(folder)
    X, y = (np.concatenate([z[f"{name}_train"], z[f"{name}_test"]]) for name in ("X", "y"))
    return Data(X.astype(float), _classes(y), z["costs"].astype(float), "classes")


def _nhanes(folder: Path, task: str) -> Data:
    folder = folder.parent / "nhanes_2017_2018_a1c"
    z = _arrays(folder, "nhanes_a1c")
    coded = set(json.loads((folder / "category_maps.json").read_text()))
    categorical = [j for j, name in enumerate(z["feature_names"]) if str(name) in coded]
    y = _classes(z["y"]) if task == "classes" else z["a1c"].astype(float)
    return Data(z["X"].astype(float), y, z["costs"].astype(float), task, categorical=categorical)


def _mq2007(folder: Path) -> Data:
    z = _arrays(folder)
    X, y = z["X"].astype(float), z["y"].astype(float)
    return Data(X, y, z["costs_derived"].astype(float), "ranking", z["qid"], z["part"])


def _mslr(folder: Path) -> Data:
    z = _arrays(folder)
    names = ("train", "vali", "test")
    X, y, qid = (np.concatenate([z[f"{what}_{name}"] for name in names]) for what in ("X", "y", "qid"))
    part = np.repeat(np.arange(3), [len(z[f"y_{name}"]) for name in names])
    return Data(X.astype(float), y.astype(float), z["costs"].astype(float), "ranking", qid, part)


def _miniboone(folder: Path) -> Data:
    z = _arrays(folder)
    drawn = np.sort(np.random.default_rng(0).choice(len(z["y"]), 20_000, replace=False))
    return Data(z["X"][drawn].astype(float), _classes(z["y"][drawn]), z["costs"].astype(float), "classes")


def _keel(folder: Path) -> Data:
    with gzip.open(folder.parent / "keel_uniform" / f"{folder.name}.dat.gz", "rt") as lines:
        table = np.array([line.strip().split(",") for line in lines if not line.startswith("@")])
    return Data(table[:, :-1].astype(float), _classes(table[:, -1]), np.ones(table.shape[1] - 1), "classes")


@dataclass(frozen=True)
class Set:
    load: Callable[[Path], Data]
    n_states: int
    further: bool = False  # looked at only after the method was finished; by name only, and not part of the means


SETS = {
    "ann_thyroid": Set(_thyroid, 5),
    "nhanes_classes": Set(lambda folder: _nhanes(folder, "classes"), 5),
    "nhanes_regression": Set(lambda folder: _nhanes(folder, "regression"), 5),
    "mq2007_partial": Set(_mq2007, 5),
    "mslr_sample": Set(_mslr, 5),
    "miniboone_partial": Set(_miniboone, 5),
    "spambase": Set(_keel, 5),
    "satimage": Set(_keel, 5),
    "heart_cleveland": Set(_turney, 20),
    "hepatitis": Set(_turney, 20),
    "pima_diabetes": Set(_turney, 20),
    "pima_blood_draw": Set(_pima_bill, 20),
    "magic": Set(_keel, 5, further=True),
    "penbased": Set(_keel, 5, further=True),
    "letter": Set(_keel, 5, further=True),
}


# ------------------------------------------------------------------------------------------------ one state


def quality(data: Data, margins: np.ndarray) -> float:
    y = data.y
    if data.task == "regression":
        return 1.0 - float(np.mean((margins[:, 0] - y) ** 2) / np.var(y))
    if data.task == "ranking":
        return ndcg(y, margins[:, 0], data.qid, k=5)
    if margins.shape[1] == 1:
        return float(roc_auc_score(y, margins[:, 0]))
    shares = probabilities(margins, "softmax")
    present = [c for c in range(shares.shape[1]) if 0 < (y == c).sum() < len(y)]
    return float(np.mean([roc_auc_score(y == c, shares[:, c]) for c in present]))


def baseline_quality(data: Data) -> float:
    """Of a constant prediction; of random order for ranking."""
    if data.task != "ranking":
        return {"regression": 0.0, "classes": 0.5}[data.task]
    rng = np.random.default_rng(0)
    return float(np.mean([ndcg(data.y, rng.random(len(data.y)), data.qid, k=5) for _ in range(20)]))


def judge(model, **parts: Data) -> dict[str, float]:
    point = {}
    for name, part in parts.items():
        margins, cost = model.decision_and_cost(part.X)
        point[f"{name}_quality"], point[f"{name}_cost"] = quality(part, margins), float(cost.mean())
    return point


def run_cegb(train: Data, validation: Data, test: Data, regularised: bool) -> tuple[dict, list[dict]]:
    n_classes = len(np.unique(train.y)) if train.task == "classes" else 1
    parameters: dict = PLAIN | {
        "objective": "regression" if n_classes == 1 else "binary" if n_classes == 2 else "multiclass",
        "min_data_in_leaf": max(1, min(20, len(train.y) // 20)),
    }
    if regularised:
        parameters |= REGULARISED
    if n_classes > 2:
        parameters["num_class"] = n_classes
    if n_classes > 1:
        share = np.bincount(train.y) / len(train.y)
        risk = -2.0 * float(share @ np.log(share))  # LightGBM's gains are twice the drop of the log loss
    else:
        risk = float(np.var(train.y))
    prices = risk / np.median(train.prices[train.prices > 0]) * train.prices
    most = 300 * capacity_for(len(train.y)).n_rounds // 200  # where our experts may have more rounds, so does CEGB

    def fit(extra: dict) -> dict[str, float]:
        rows = lightgbm.Dataset(train.X, train.y, feature_name=train.columns, categorical_feature=train.categorical)
        judges = rows.create_valid(validation.X, validation.y)
        stop = lightgbm.early_stopping(20, verbose=False)
        booster = lightgbm.train(parameters | extra, rows, most, valid_sets=[judges], callbacks=[stop])
        # the same code counts for both methods
        model = from_lightgbm(booster, train.costs)
        return judge(model, validation=validation, test=test)

    full = fit({})
    points = [full]
    for strength in STRENGTHS:
        for penalty, unit in (("lazy", 1.0), ("coupled", float(len(train.y)))):
            points.append(fit({f"cegb_penalty_feature_{penalty}": list(strength * unit * prices)}))
    return full, points


def run_ours(train: Data, validation: Data, test: Data, state: int, method: Experts) -> list[dict]:
    options = {"categorical_features": train.categorical} if train.categorical else {}
    estimator = ESTIMATORS[train.task](costs=train.costs, method=method, random_state=state, n_jobs=1, **options)
    queries = {} if train.qid is None else {"qid": train.qid, "qid_val": validation.qid}
    frontier = Frontier(estimator).fit(train.X, train.y, X_val=validation.X, y_val=validation.y, **queries)
    points = []
    for row, model in zip(frontier.tried_, frontier.tried_models_, strict=True):
        # what validation data says is in the frontier's own table, in the same measures
        point = {"validation_quality": row["validation_quality"], "validation_cost": row["mean_cost"]}
        point["all_quality"] = row["quality"]  # by out-of-fold rows as well, which `Frontier.best` chooses by
        points.append(point | judge(model.model_, test=test))
    return points


def run_state(data: Data, state: int, regularised: bool, known: Path, their: Path | None, engine: str) -> dict:
    """Both methods; neither depends on the other: what is `known` of ours, or of `their` points, is not run again."""
    train, validation, test = data.split(state)
    earlier = json.loads(known.read_text()) if known.exists() else {}
    started = time.perf_counter()
    if their is not None and their.exists():
        before = json.loads(their.read_text())
        full, theirs, their_seconds = before["full"], before["cegb"], before["cegb_seconds"]
    else:
        full, theirs = run_cegb(train, validation, test, regularised)
        their_seconds = time.perf_counter() - started
    if earlier and engine == "lightgbm":
        ours, our_seconds = earlier["cstc"], earlier["cstc_seconds"]
    else:
        between = time.perf_counter()
        ours = run_ours(train, validation, test, state, Experts(engine=engine, fallbacks=False))
        our_seconds = time.perf_counter() - between
    return {
        "full": full,
        "constant": baseline_quality(test),
        "cegb": theirs,
        "cstc": ours,
        "cegb_seconds": their_seconds,
        "cstc_seconds": our_seconds,
        "rows": len(data.y),
        "date": datetime.date.today().isoformat(),
    }


# ------------------------------------------------------------------------------------------------ the measure


def played(points: list[dict], constant: float, budgets: np.ndarray, by: str = "validation_quality") -> np.ndarray:
    """Test cost and quality at each budget, of the affordable point that validation data prefers, or another figure."""
    by_cost = sorted(points, key=lambda point: point["validation_cost"])
    curve = np.empty((len(budgets), 2))
    best, at = None, 0
    for number, budget in enumerate(budgets):
        while at < len(by_cost) and by_cost[at]["validation_cost"] <= budget:
            if best is None or by_cost[at][by] > best[by]:
                best = by_cost[at]
            at += 1
        curve[number] = (0.0, constant) if best is None else (best["test_cost"], best["test_quality"])
    return curve


class Measure:
    """The curves of all states of a set, averaged over any choice of them."""

    def __init__(self, states: list[dict]):
        self.full = np.array([[state["full"]["test_cost"], state["full"]["test_quality"]] for state in states])
        self.constant = np.array([state["constant"] for state in states])
        costs = [p["validation_cost"] for state in states for name in ("cegb", "cstc") for p in state[name]]
        budgets = np.unique([cost for cost in costs if cost > 0])  # between two of them nobody plays another point
        self.curves = {
            name: np.array([played(state[name], state["constant"], budgets) for state in states])
            for name in ("cegb", "cstc")
        }

    def costs(self, name: str, chosen: np.ndarray) -> np.ndarray:
        """Cost at each target."""
        full_cost, full_quality = self.full[chosen].mean(axis=0)
        constant = self.constant[chosen].mean()
        curve = self.curves[name][chosen].mean(axis=0)
        costs = []
        for target in TARGETS:
            reached = np.flatnonzero(curve[:, 1] >= constant + target * (full_quality - constant))
            costs.append(curve[reached[0], 0] if len(reached) else full_cost)
        return np.array(costs)

    def ratios(self, chosen: np.ndarray) -> np.ndarray:
        ours, theirs = (
            np.maximum(self.costs(name, chosen), 1e-3 * self.full[:, 0].mean()) for name in ("cstc", "cegb")
        )
        return ours / theirs


def geometric(values) -> float:
    return float(np.exp(np.mean(np.log(values))))


def report(cache: Path) -> dict:
    measures, rows, seconds = {}, {}, {}
    for name in SETS:
        states = [json.loads(path.read_text()) for path in sorted(cache.glob(f"{name}-*.json"))]
        if states:
            measures[name] = Measure(states)
            rows[name] = states[0]["rows"]
            seconds[name] = [sum(state[f"{who}_seconds"] for state in states) for who in ("cstc", "cegb")]
    if not measures:
        raise SystemExit(f"nothing is finished in {cache}; run with --data PATH first")
    rng = np.random.default_rng(0)
    draws = 1000
    drawn = {}
    result: dict = {"sets": {}}
    print(
        f"{'set':19s} {'rows':>6s} {'states':>6s}  "
        + "  ".join(f"{t:.0%}" for t in TARGETS)
        + "   mean  (95%)         time"
    )
    for name, measure in measures.items():
        n = len(measure.full)
        ratios = measure.ratios(np.arange(n))
        drawn[name] = np.array([geometric(measure.ratios(rng.integers(n, size=n))) for _ in range(draws)])
        low, high = np.quantile(drawn[name], [0.025, 0.975])
        time_ratio = seconds[name][0] / seconds[name][1]
        print(
            f"{name:19s} {rows[name]:6d} {n:6d}  "
            + "  ".join(f"{r:.2f}" for r in ratios)
            + f"   {geometric(ratios):.2f}  ({low:.2f} - {high:.2f})  {time_ratio:4.1f} x"
        )
        result["sets"][name] = {
            "rows": rows[name],
            "states": n,
            "ratios": ratios.tolist(),
            "mean": geometric(ratios),
            "interval": [float(low), float(high)],
            "time_ratio": time_ratio,
            "cost": {who: measure.costs(who, np.arange(n)).tolist() for who in ("cstc", "cegb")},
            "full": measure.full.mean(axis=0).tolist(),
        }
    for name in sorted(RANKINGS & measures.keys()):
        tell_budgets(name, [json.loads(path.read_text()) for path in sorted(cache.glob(f"{name}-*.json"))])
    plain = [name for name in measures if name != "pima_blood_draw" and not SETS[name].further]
    for title, chosen in (
        (f"sets of {LARGE} rows and more", [name for name in plain if rows[name] >= LARGE]),
        ("all sets", plain),
    ):
        if chosen:
            mean = geometric([result["sets"][name]["mean"] for name in chosen])
            low, high = np.quantile(np.exp(np.mean([np.log(drawn[name]) for name in chosen], axis=0)), [0.025, 0.975])
            print(f"geometric mean over {title}: {mean:.3f}  ({low:.2f} - {high:.2f}), {len(chosen)} sets")
            result[title] = {"mean": mean, "interval": [float(low), float(high)], "sets": chosen}
    return result


def tell_budgets(name: str, states: list[dict]) -> None:
    """Test quality within parts of the full cost, mean over states: chosen by validation rows, and as users would."""
    who = {"cstc": ("cstc", "validation_quality"), "CEGB": ("cegb", "validation_quality")}
    if all("all_quality" in point for state in states for point in state["cstc"]):
        who["cstc by Frontier.best"] = ("cstc", "all_quality")
    for title, (method, by) in who.items():
        told = []
        for part in PARTS:
            found = [
                played(state[method], state["constant"], np.array([part * state["full"]["test_cost"]]), by)[0, 1]
                for state in states
            ]
            told.append(f"{np.mean(found):.4f} at {part:.0%}")
        print(f"  {name}, {title}: " + ", ".join(told))


def compare(cache: Path, earlier: Path) -> None:
    """Our cost now over our cost then, at equal quality, on the states that both have."""
    means = []
    for name in SETS:
        pairs = [(path, earlier / path.name) for path in sorted(cache.glob(f"{name}-*.json"))]
        states = [
            json.loads(now.read_text()) | {"cegb": json.loads(then.read_text())["cstc"]}
            for now, then in pairs
            if then.exists()
        ]
        if states:
            ratios = Measure(states).ratios(np.arange(len(states)))
            means.append(geometric(ratios))
            shown = "  ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"{name:19s} {len(states):3d} states  {shown}   {means[-1]:.3f}")
    if not means:
        raise SystemExit(f"{cache} and {earlier} have no state in common")
    print(f"geometric mean of {len(means)} sets: {geometric(means):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the data sets")
    usual = [name for name, each in SETS.items() if not each.further]
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=usual)
    parser.add_argument("--states", type=int, help="random states for each set (default: 5, or 20 under 1,000 rows)")
    parser.add_argument("--cache", type=Path, default=Path("out/ahead"), help="where finished states are kept")
    parser.add_argument(
        "--regularised", action="store_true", help="CEGB with the boosting parameters of cstc's experts"
    )
    parser.add_argument("--cegb-of", type=Path, help="take CEGB's points from this cache, where it has them")
    parser.add_argument("--engine", choices=("lightgbm", "xgboost"), default="lightgbm", help="of our experts")
    parser.add_argument("--report", action="store_true", help="only print the table of what is finished")
    parser.add_argument("--against", type=Path, help="only compare --cache with this one, of an earlier version")
    arguments = parser.parse_args()
    if arguments.against is not None:
        compare(arguments.cache, arguments.against)
        return
    if arguments.regularised and arguments.engine != "lightgbm":
        parser.error("--regularised is about CEGB, --engine about cstc; give one of them")
    cache = arguments.cache / "regularised" if arguments.regularised else arguments.cache
    cache = cache if arguments.engine == "lightgbm" else cache / arguments.engine
    if not arguments.report:
        if arguments.data is None or not arguments.data.is_dir():
            parser.error("--data must name the folder with the data sets")
        cache.mkdir(parents=True, exist_ok=True)
        # state by state over all sets, so that an early table already has them all
        most = arguments.states or max(SETS[name].n_states for name in arguments.sets)
        for state in range(most):
            for name in arguments.sets:
                path = cache / f"{name}-{state:02d}.json"
                if path.exists() or state >= (arguments.states or SETS[name].n_states):
                    continue
                known = arguments.cache / path.name
                their = known if arguments.engine != "lightgbm" else None  # the same, whatever our engine
                their = their if arguments.cegb_of is None else arguments.cegb_of / path.name
                data = SETS[name].load(arguments.data / name)
                found = run_state(data, state, arguments.regularised, known, their, arguments.engine)
                unfinished = path.with_suffix(".part")
                unfinished.write_text(json.dumps(found))
                os.replace(unfinished, path)
                print(
                    f"{name}, state {state}: cegb {found['cegb_seconds']:.0f} s, cstc {found['cstc_seconds']:.0f} s",
                    flush=True,
                )
    result = report(cache)
    (cache / "table.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
