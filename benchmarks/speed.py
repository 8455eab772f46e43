"""Time of training, prediction and serving, as ratios to LightGBM in the same run.

    python benchmarks/speed.py                      # all lines, about 20 minutes; nothing else may run
    python benchmarks/speed.py --only fit predict   # some of them
    python benchmarks/speed.py --out benchmarks/results/speed-DATE.md

"1" is LightGBM with 200 rounds of depth 4 and two threads, from the same array, unless a line says otherwise.  The
fits of the first two lines and the models of the prediction lines have at most 200 rounds of depth 4.  Every time is
the least of several runs.  No data is needed: classes are drawn by scikit-learn's `make_classification`, rankings by
`make_yahoo_like`.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import lightgbm
import numpy as np
import sklearn
from sklearn.datasets import load_diabetes, make_classification
from sklearn.metrics import log_loss, roc_auc_score

import cstc
from cstc import CSTCClassifier, CSTCRanker, CSTCRegressor, Experts, Frontier
from cstc.datasets import make_yahoo_like
from cstc.model import FittedTree
from cstc.serving import Extractor, OnDemandPredictor, extractor

N_COLUMNS = 20
PRICES = np.round(np.geomspace(1, 50, N_COLUMNS), 2)
PLAIN = {"max_depth": 4, "num_leaves": 16, "verbosity": -1, "num_threads": 2}
SMALL = {"n_weak_learners": 200, "weak_learner_depth": 4, "random_state": 0, "costs": PRICES}
SMALL |= {"method": Experts(fallbacks=False)}
COST_WEIGHT = 1e-3


class Line(NamedTuple):
    """A line of the table."""

    what: str
    before: str
    must: str
    goal: str
    measured: str


def least(function: Callable[[], Any], n_times: int = 3) -> float:
    """Seconds of the fastest of some runs."""
    found = []
    for _ in range(n_times):
        started = time.perf_counter()
        function()
        found.append(time.perf_counter() - started)
    return min(found)


@cache
def classes(n_train: int, n_test: int = 25_000) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    X, y = make_classification(
        n_train + n_test, N_COLUMNS, n_informative=10, n_redundant=5, class_sep=0.8, random_state=0
    )
    return X[:n_train], y[:n_train], X[n_train:], y[n_train:]


def plain_fit(X: np.ndarray, y: np.ndarray, objective: str = "binary", rounds: int = 200) -> lightgbm.Booster:
    return lightgbm.train(PLAIN | {"objective": objective}, lightgbm.Dataset(X, y), rounds)


# -- training ------------------------------------------------------------------------------------------------------


def fit() -> Iterator[Line]:
    X, y, _, _ = classes(50_000)
    unit = least(lambda: plain_fit(X, y))
    ours = least(lambda: CSTCClassifier(cost_weight=COST_WEIGHT, **SMALL).fit(X, y), 2)
    yield Line("one default fit, 50,000 x 20", "92", "25", "10", f"{ours / unit:.1f} ({ours:.1f} s / {unit:.2f} s)")


def fit_wide() -> Iterator[Line]:
    X, y, qid, costs = make_yahoo_like(800, random_state=0)
    unit = least(lambda: plain_fit(X, y, "regression"), 2)
    options = SMALL | {"costs": costs}
    ours = least(lambda: CSTCRanker(cost_weight=1e-5, **options).fit(X, y, qid=qid), 1)
    what = f"one default fit, {len(y):,} x {X.shape[1]} (`make_yahoo_like(800)`)"
    yield Line(what, "28", "10", "5", f"{ours / unit:.1f} ({ours:.1f} s / {unit:.2f} s)")


def stopped_fit(X: np.ndarray, y: np.ndarray, X_val: np.ndarray, y_val: np.ndarray) -> lightgbm.Booster:
    """LightGBM with 31 leaves, stopped on validation rows that it has beside the training rows."""
    options = {"objective": "binary", "num_leaves": 31, "verbosity": -1, "num_threads": 2}
    data = lightgbm.Dataset(X, y)
    judges = lightgbm.Dataset(X_val, y_val, reference=data)
    stop = lightgbm.early_stopping(50, verbose=False)
    return lightgbm.train(options, data, 5000, valid_sets=[judges], callbacks=[stop])


def rule() -> Iterator[Line]:
    """Rounds, leaves and folds by the rule; the peer stops on half of the test rows, and the other half judges both."""
    X, y, X_test, y_test = classes(50_000)
    half = len(y_test) // 2
    judges = X_test[:half], y_test[:half]
    unit = least(lambda: stopped_fit(X, y, *judges), 2)
    ours = least(lambda: CSTCClassifier(costs=PRICES, cost_weight=COST_WEIGHT, random_state=0).fit(X, y), 1)
    what = "one default fit by the rule, 50,000 x 20 / LightGBM with 31 leaves, stopped on validation rows"
    yield Line(what, "not run", "25", "10", f"{ours / unit:.1f} ({ours:.1f} s / {unit:.2f} s)")
    for n in (50_000, 200_000):
        X, y, X_test, y_test = classes(n)
        booster = stopped_fit(X, y, X_test[:half], y_test[:half])
        model = CSTCClassifier(costs=PRICES, cost_weight=0.0, random_state=0).fit(X, y)
        theirs = log_loss(y_test[half:], booster.predict(X_test[half:]))
        ours = log_loss(y_test[half:], model.predict_proba(X_test[half:])[:, 1])
        shown = f"{ours / theirs:.3f} ({ours:.4f} / {theirs:.4f}, {booster.best_iteration} rounds)"
        before = "1.76" if n == 50_000 else "not run"
        what = f"test log loss of `cost_weight=0` at {n:,} rows / the same LightGBM's"
        yield Line(what, before, "1.00", "0.97", shown)


def frontier() -> Iterator[Line]:
    X, y, _, _ = classes(50_000)
    estimator = CSTCClassifier(cost_weight=COST_WEIGHT, **SMALL)
    one = least(lambda: estimator.fit(X[:40_000], y[:40_000]), 2)
    whole = least(lambda: Frontier(estimator).fit(X[:40_000], y[:40_000], X_val=X[40_000:], y_val=y[40_000:]), 1)
    yield Line("frontier of the default grid / one fit", "up to 2.5", "1.5", "1.2", f"{whole / one:.2f}")


def scaling() -> Iterator[Line]:
    seconds = []
    for n in (100_000, 400_000):
        X, y, _, _ = classes(n)
        seconds.append(least(lambda X=X, y=y: CSTCClassifier(cost_weight=COST_WEIGHT, **SMALL).fit(X, y), 1))
    what = "100,000 to 400,000 x 20, 200 rounds: time"
    yield Line(what, "", "x 4.4", "x 4", f"x {seconds[1] / seconds[0]:.2f} ({seconds[0]:.0f} s, {seconds[1]:.0f} s)")


def _spin(until: float) -> None:
    while time.time() < until:
        pass


def busy() -> Iterator[Line]:
    X, y = load_diabetes(return_X_y=True)

    def small_fit() -> None:
        CSTCRegressor(cost_weight=1.0, random_state=0).fit(X, y)

    idle = least(small_fit)
    others = [multiprocessing.Process(target=_spin, args=(time.time() + 120,)) for _ in range(os.cpu_count() or 1)]
    for other in others:
        other.start()
    try:
        beside = least(small_fit)
    finally:
        for other in others:
            other.kill()
            other.join()
    what = "442 x 10, default threads, beside one busy process on each core / idle"
    yield Line(what, "700", "3", "2", f"{beside / idle:.2f} ({beside:.2f} s / {idle:.2f} s)")


# -- prediction ----------------------------------------------------------------------------------------------------


@cache
def models() -> tuple[lightgbm.Booster, CSTCClassifier, CSTCClassifier]:
    """LightGBM, the model at full quality, and the cheapest with 98% of its lift."""
    X, y, X_test, y_test = classes(50_000, 55_000)
    full = CSTCClassifier(**SMALL | {"cost_weight": 0.0}).fit(X, y)
    found = Frontier(CSTCClassifier(**SMALL), n_weights=10).fit(X, y, X_val=X_test[:5000], y_val=y_test[:5000])
    best = found.table_.column("quality").max()
    return plain_fit(X, y), full, found.best(quality=0.5 + 0.98 * (best - 0.5), paired=False)


def predict() -> Iterator[Line]:
    booster, full, cheap = models()
    X = classes(50_000, 55_000)[2]
    unit = least(lambda: booster.predict(X, num_threads=2), 5)
    first = "`predict_proba` of the estimator, 55,000 x 20, model at full quality / `Booster.predict`"
    second = "the same, the cheapest model with 98% of the lift"
    for what, model, goals in ((first, full, ("22", "4", "1")), (second, cheap, ("", "2", "0.5"))):
        ours = least(lambda model=model: model.predict_proba(X), 5)
        trees = f"{model.model_.pool.n_learners} trees, {model.model_.shape.n_nodes} nodes"
        yield Line(what, *goals, f"{ours / unit:.2f} ({ours:.3f} s / {unit:.3f} s, {trees})")
    ratios = [least(lambda m=m: m.predict_cost(X), 5) / least(lambda m=m: m.predict(X), 5) for m in (full, cheap)]
    shown = " and ".join(f"{ratio:.2f}" for ratio in ratios)
    yield Line("`predict_cost` / `predict`", "1.05 to 4", "1.2", "1.05", shown)
    auc = roc_auc_score(classes(50_000, 55_000)[3], cheap.predict_proba(X)[:, 1])
    print(f"(AUC of the cheaper model {auc:.4f}, mean cost {cheap.predict_cost(X).mean():.1f})", file=sys.stderr)


def reloaded(model: CSTCClassifier) -> FittedTree:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.cstc"
        model.save(path)
        return cstc.load(path)


def one_row() -> Iterator[Line]:
    booster, _, cheap = models()
    X = classes(50_000, 55_000)[2]
    loaded = reloaded(cheap)
    rows = [X[i : i + 1] for i in range(500)]

    def each(function: Callable[[Any], Any], given: list[Any]) -> float:
        return least(lambda: [function(row) for row in given], 15) / len(given)

    unit = each(lambda row: booster.predict(row, num_threads=1), rows)
    ours = each(loaded.predict, rows)
    shown = f"{ours / unit:.2f} ({1e6 * ours:.0f} us / {1e6 * unit:.0f} us)"
    what = "one row: `predict` of the loaded model / `Booster.predict` of the same row, one thread"
    yield Line(what, "2.6 (estimator)", "1", "0.5", shown)

    @extractor(provides=[f"x{j}" for j in range(N_COLUMNS)])
    def memory(i: int) -> dict[str, float]:
        return {f"x{j}": value for j, value in enumerate(X[i].tolist())}

    with OnDemandPredictor(loaded, [memory]) as predictor:
        ours = each(predictor.predict, list(range(500)))
    shown = f"{ours / unit:.2f} ({1e6 * ours:.0f} us)"
    yield Line("one row on demand, sources in memory / the same", "1.2 to 2.7", "1", "0.3", shown)


WAIT = 0.005  # seconds that a slow source takes


def slow_sources(rows: list[list[float]], n_sources: int) -> list[Extractor]:
    """Sources that share the columns evenly and wait before they answer."""

    def source(columns: range) -> Extractor:
        names = [(f"x{j}", j) for j in columns]

        def fetch(i: int) -> dict[str, float]:
            time.sleep(WAIT)
            return {name: rows[i][j] for name, j in names}

        return extractor(provides=[name for name, _ in names], name=f"source {columns.start}")(fetch)

    return [source(range(k, N_COLUMNS, n_sources)) for k in range(n_sources)]


def beyond_the_calls(model: FittedTree, n_sources: int, n_rows: int = 300) -> float:
    """Seconds of a prediction beyond those of the same calls made by hand, in turn; all sources are one wave."""
    rows = classes(50_000, 55_000)[2][:n_rows].tolist()
    sources = slow_sources(rows, n_sources)
    first, *others = [source.function for source in sources]
    ours, by_hand = [], []
    with ThreadPoolExecutor(n_sources) as pool, OnDemandPredictor(model, sources) as predictor:

        def hands(i: int) -> None:
            futures = [pool.submit(function, i) for function in others]
            first(i)
            for future in futures:
                future.result()

        for i in range(n_rows):
            for function, times in ((predictor.predict, ours), (hands, by_hand)):
                started = time.perf_counter()
                function(i)
                times.append(time.perf_counter() - started)
    return statistics.median(ours[10:]) - statistics.median(by_hand[10:])


def wave() -> Iterator[Line]:
    full, cheap = map(reloaded, models()[1:])
    settings = (("one source", full, 1), ("five side by side", full, 5), ("one source, the cheaper model", cheap, 1))
    found = [f"{1e6 * beyond_the_calls(model, n):.0f} us ({name})" for name, model, n in settings]
    what = "one wave of a 5 ms source: time beyond the same calls made by hand"
    yield Line(what, "300 to 900 us", "100 us", "50 us", ", ".join(found))


LINES = {
    "fit": fit,
    "fit_wide": fit_wide,
    "rule": rule,
    "frontier": frontier,
    "scaling": scaling,
    "busy": busy,
    "predict": predict,
    "one_row": one_row,
    "wave": wave,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=LINES, default=list(LINES))
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    head = [
        f"{datetime.date.today()}, {platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, LightGBM {lightgbm.__version__}, scikit-learn {sklearn.__version__}, "
        f"compiled walk: {cstc.model.native.available()}",
        "",
        "| | before | must | goal | measured |",
        "|---|---|---|---|---|",
    ]
    print("\n".join(head), flush=True)
    for name in options.only:
        for line in LINES[name]():
            head.append("| " + " | ".join(line) + " |")
            print(head[-1], flush=True)
            if options.out:
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text("\n".join(head) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
