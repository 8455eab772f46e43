"""Serving on demand: what it costs beyond the sources' own time, and what it does when sources fail.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/serving.py            # overhead of a prediction
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/serving.py --faults   # 64 callers, failing sources, 60 s

Overhead.  CSTC models of 20 features are served by 20 and by 5 sources; beside them, in alternating blocks of the same
run, one-row ``Booster.predict`` of a full LightGBM model.  With sources that answer from memory the overhead is all
time outside of them; with sources of 5 ms it is the time beyond the slowest call of every wave.

Faults.  Sources raise, hang, are cancelled, and return NaN, text, too many or too few values, under callers in threads
and on an event loop, with budgets and deadlines, some of them cancelled.  Every promise is checked for every answer.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import random
import statistics
import sys
import threading
import time
import warnings
from collections import Counter, defaultdict, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import lightgbm
import numpy as np

import cstc
from cstc.model import FittedTree
from cstc.serving import Answer, OnDemandPredictor, extractor
from cstc.tree import TreeShape

# ------------------------------------------------------------------------------------------ overhead


def make_data(n: int = 6000, n_features: int = 20) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, n_features))
    y = X[:, 0] + np.sin(3 * X[:, 1]) + X[:, 2] * X[:, 3] + 0.5 * (X[:, 4] > 0) * X[:, 5] + 0.3 * rng.normal(size=n)
    return X, y, rng.choice([1.0, 5.0, 20.0], size=n_features)


def sources_over(rows: list[list[float]], n_sources: int, *, seconds: float = 0.0, **options) -> list:
    """So many sources that share the columns evenly; each call takes `seconds`."""

    def source(columns: list[int], name: str):
        names = [f"x{j}" for j in columns]

        @extractor(provides=names, name=name, instant=not seconds, **options)
        def fetch(i):
            if seconds:
                time.sleep(seconds)
            row = rows[i]
            return {name: row[j] for name, j in zip(names, columns, strict=True)}

        return fetch

    columns = range(len(rows[0]))
    return [source([j for j in columns if j % n_sources == k], f"source {k}") for k in range(n_sources)]


def waiting_time(answer: Answer) -> float:
    """Seconds that no server could have saved: the slowest call of each wave, as the sources measured it."""
    slowest: dict[int, float] = defaultdict(float)
    for entry in answer.trail:
        if entry["event"] == "bought" and entry["latency"] is not None:
            slowest[entry["wave"]] = max(slowest[entry["wave"]], entry["latency"])
    return sum(slowest.values())


def compare(functions: dict, n_rows: int, block: int = 50) -> dict[str, float]:
    """Median seconds per call over blocks that take turns, without the seconds spent in sources."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for start in range(0, n_rows, block):
        rows = range(start, min(start + block, n_rows))
        for name, function in functions.items():
            began = time.perf_counter()
            results = [function(i) for i in rows]
            seconds = time.perf_counter() - began
            in_sources = sum(in_sources_of(result) for result in results if isinstance(result, Answer))
            times[name].append((seconds - in_sources) / len(rows))
    return {name: statistics.median(values) for name, values in times.items()}


def in_sources_of(answer: Answer) -> float:
    return sum(entry["latency"] or 0.0 for entry in answer.trail if entry["event"] == "bought")


def in_memory(models: dict[str, FittedTree], booster: lightgbm.Booster, X: np.ndarray, n_rows: int) -> None:
    rows = X.tolist()
    singles = [np.ascontiguousarray(X[i : i + 1]) for i in range(n_rows)]
    functions = {"Booster.predict": lambda i: booster.predict(singles[i], num_threads=1)}
    for name, model in models.items():
        for n_sources in (20, 5):
            functions[f"{name}, {n_sources} sources"] = OnDemandPredictor(model, sources_over(rows, n_sources)).predict
    compare(functions, min(n_rows, 200))  # warm up
    medians = compare(functions, n_rows)
    base = medians.pop("Booster.predict")
    print(f"\nsources in memory, {n_rows} rows: one-row Booster.predict takes {base * 1e6:.0f} us")
    for name, seconds in medians.items():
        print(f"  {name:<42} overhead {seconds * 1e6:6.0f} us   {seconds / base:5.2f} x Booster.predict")


def with_slow_sources(models: dict[str, FittedTree], X: np.ndarray, n_rows: int, seconds: float) -> None:
    """Medians over the rows; beside them the same calls by hand, wave by wave, with the same threads and no model.

    A thread that wakes up after some milliseconds finds its caches cold, and on some machines waking it is dear by
    itself: what the calls by hand lose is lost to every server there.
    """
    print(f"\n5 sources of {1000 * seconds:g} ms, medians of {n_rows} rows:")
    rows = X.tolist()
    for name, model in models.items():
        for label, options in {"no time limit": {}, "timeout of 2 s": {"timeout": 2.0}}.items():
            sources = sources_over(rows, 5, seconds=seconds, **options)
            with OnDemandPredictor(model, sources) as predictor:
                predictor.predict(0)
                answers, times = timed(predictor.predict, range(n_rows))
            waves = [waves_of(answer) for answer in answers]
            lost = times - np.array([waiting_time(answer) for answer in answers])
            hands = Hands({source.name: source.function for source in sources})
            waited_by_hand, times_by_hand = timed(hands.fetch, list(enumerate(waves)))
            lost_by_hand = times_by_hand - np.array(waited_by_hand)
            n_waves = np.mean([len(row) for row in waves])
            print(
                f"  {name + ', ' + label:<38} {1000 * np.median(times):5.2f} ms in {n_waves:.1f} waves"
                f"   overhead {1e6 * np.median(lost):4.0f} us = {100 * np.median(lost / times):5.2f}%"
                f"   (by hand {1e6 * np.median(lost_by_hand):4.0f} us = "
                f"{100 * np.median(lost_by_hand / times_by_hand):5.2f}%)"
            )


def timed(function, arguments) -> tuple[list, np.ndarray]:
    """Results and seconds of each call."""
    results, times = [], []
    for argument in arguments:
        began = time.perf_counter()
        results.append(function(argument))
        times.append(time.perf_counter() - began)
    return results, np.array(times)


def waves_of(answer: Answer) -> list[list[str]]:
    """The sources that were called together."""
    waves: dict[int, list[str]] = defaultdict(list)
    for entry in answer.trail:
        if entry["event"] == "bought" and entry["source"]:
            waves[entry["wave"]].append(entry["source"])
    return list(waves.values())


class Hands:
    """The same calls without a model: what threads cost on this machine."""

    def __init__(self, functions: dict) -> None:
        self._functions = functions
        self._pool = ThreadPoolExecutor(32)

    def _call(self, name: str, i: int) -> float:
        began = time.perf_counter()
        self._functions[name](i)
        return time.perf_counter() - began

    def fetch(self, row: tuple[int, list[list[str]]]) -> float:
        """Seconds of the slowest calls of the waves."""
        i, waves = row
        slowest = 0.0
        for names in waves:
            if len(names) == 1:
                slowest += self._call(names[0], i)
            else:
                slowest += max(f.result() for f in [self._pool.submit(self._call, name, i) for name in names])
        return slowest


def overhead(n_rows: int, rounds: int) -> None:
    X, y, costs = make_data()
    data = lightgbm.Dataset(X, y, feature_name=[f"x{j}" for j in range(X.shape[1])])
    booster = lightgbm.train({"objective": "regression", "verbosity": -1, "num_threads": 1}, data, rounds)
    machine = platform.processor() or platform.machine()
    print(f"Python {platform.python_version()}, LightGBM {lightgbm.__version__}, {machine}")
    print(f"full LightGBM model: {booster.num_trees()} trees of 31 leaves on {X.shape[1]} features")
    models = {}
    for weight in (0.0005, 0.005):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # convergence is not what is measured here
            estimator = cstc.CSTCRegressor(costs=costs, cost_weight=weight, random_state=0, n_jobs=1).fit(X, y)
        model = models[f"CSTC, cost_weight={weight:g}"] = estimator.model_
        learners = model.terminal_learners[model.apply(X)].sum(axis=1).mean()
        print(
            f"CSTC, cost_weight={weight:g}: {model.shape.n_nodes} nodes, {learners:.0f} learners per row, "
            f"cost {model.predict_cost(X).mean():.1f} of {costs.sum():.0f}"
        )
    in_memory(models | {"the LightGBM model itself": cstc.from_lightgbm(booster, costs)}, booster, X, n_rows)
    with_slow_sources(models, X, max(20, n_rows // 10), 0.005)


# -------------------------------------------------------------------------------------------- faults

N_FEATURES = 8
GROUPS = {"age": [0], "vitals": [1, 2], "lab": [3, 4, 5], "scan": [6], "history": [7]}
HANG = 1.0  # seconds; the timeouts are shorter


def soak_model() -> FittedTree:
    """Three nodes over one boosted ensemble: gates on some of its trees, predictors on others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, N_FEATURES))
    names = [f"f{j}" for j in range(N_FEATURES)]
    data = lightgbm.Dataset(X, X @ rng.normal(size=N_FEATURES) + X[:, 0] * X[:, 3], feature_name=names)
    parameters = {
        "objective": "regression",
        "num_leaves": 8,
        "verbosity": -1,
        "num_threads": 1,
        "feature_fraction": 0.4,
    }
    prices = {name: float(1 + j) for j, name in enumerate(names)} | {"draw": 3.0}
    costs = cstc.CostModel(prices, {f"f{j}": ["draw"] for j in GROUPS["lab"]}, evaluation=0.01)
    single = cstc.from_lightgbm(lightgbm.train(parameters, data, 40), costs)
    n = single.pool.n_learners
    use = np.zeros((n, 3))
    use[:6, 0] = use[6:24, 1] = use[18:, 2] = 1.0
    return replace(
        single,
        shape=TreeShape.full(2),
        predict_weights=use[:, :, None].copy(),
        predict_intercepts=np.zeros((3, 1)),
        route_weights=use * np.array([1.0, 0.0, 0.0]),
        thresholds=np.zeros(3),
    )


@dataclass
class Ledger:
    """What the sources saw and what the callers got; lists and counters grow under one lock."""

    calls: Counter = field(default_factory=Counter)  # (request, source) -> times called
    faults: Counter = field(default_factory=Counter)
    statuses: Counter = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    later: deque = field(default_factory=deque)  # (when, request, calls charged by source) still to be compared
    most_threads: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note_call(self, request: int, source: str) -> None:
        with self.lock:
            self.calls[request, source] += 1

    def problem(self, text: str) -> None:
        with self.lock:
            self.problems.append(text)


def misbehave(rng: random.Random, ledger: Ledger, columns: list[int]) -> tuple[float, object]:
    """How long a call takes, and what it then returns or raises."""
    values: object = {f"f{j}": rng.gauss(0, 1) for j in columns}
    chance = rng.random()
    faults = [
        (0.10, "raises", lambda: OSError("connection reset")),
        (0.05, "hangs", lambda: values),
        (0.02, "NaN", lambda: {f"f{j}": float("nan") for j in columns}),
        (0.02, "text", lambda: {f"f{j}": "n/a" for j in columns}),
        (0.02, "too many values", lambda: [0.0] * (len(columns) + 3)),
        (0.02, "too few values", lambda: {}),
        (0.02, "cancelled", lambda: asyncio.CancelledError()),
    ]
    for share, name, result in faults:
        if chance < share:
            with ledger.lock:
                ledger.faults[name] += 1
            return (HANG if name == "hangs" else 0.001), result()
        chance -= share
    return 0.001, values


def soak_sources(ledger: Ledger, seed: int) -> list:
    rng = random.Random(seed)

    def source(name: str, columns: list[int]):
        options = {"retries": 1} if name == "history" else {}

        def finish(result: object) -> object:
            if isinstance(result, BaseException):
                raise result
            return result

        def fetch(request):
            ledger.note_call(request, name)
            seconds, result = misbehave(rng, ledger, columns)
            time.sleep(seconds)
            return finish(result)

        async def afetch(request):
            ledger.note_call(request, name)
            seconds, result = misbehave(rng, ledger, columns)
            await asyncio.sleep(seconds)
            return finish(result)

        provides = [f"f{j}" for j in columns]
        function = afetch if name == "scan" else fetch
        return extractor(provides=provides, timeout=0.2, name=name, **options)(function)

    return [source(name, columns) for name, columns in GROUPS.items()]


def check(ledger: Ledger, request: int, answer: Answer, budget: float | None) -> None:
    """The promises that can be read off one answer."""
    trail = [entry for entry in answer.trail if entry["event"] == "bought"]
    items = [item for entry in trail for item in entry["items"]]
    with ledger.lock:
        ledger.statuses[answer.status] += 1
    if budget is not None and answer.cost > budget:
        ledger.problem(f"request {request}: cost {answer.cost} over the budget of {budget}")
    if len(set(items)) < len(items):
        ledger.problem(f"request {request}: paid twice: {items}")
    if abs(answer.cost - sum(e["price"] for e in trail) - 0.01 * answer.n_evaluated) > 1e-9:
        ledger.problem(f"request {request}: the trail does not add up to the cost {answer.cost}")
    if not np.isfinite(answer.value):
        ledger.problem(f"request {request}: the answer is {answer.value}")
    ledger.later.append((time.perf_counter(), request, Counter(e["source"] for e in trail if e["source"])))


def compare_calls(ledger: Ledger, age: float) -> None:
    """What the sources saw of requests that were answered `age` seconds ago is what was charged; then forget it."""
    while ledger.later and ledger.later[0][0] < time.perf_counter() - age:
        _, request, charged = ledger.later.popleft()
        with ledger.lock:
            called = {name: ledger.calls.pop((request, name), 0) for name in GROUPS}
        for name in GROUPS:
            if charged is not None and called[name] != charged[name]:
                ledger.problem(f"request {request}: {name}: {called[name]} calls, {charged[name]} charged")


def soak(seconds: float, callers: int = 64, max_threads: int = 24, seed: int = 0, report=print) -> Ledger:
    """Callers in threads and on an event loop until the time is over; the ledger's `problems` stays empty."""
    ledger = Ledger()
    before = threading.active_count()
    predictor = OnDemandPredictor(soak_model(), soak_sources(ledger, seed), max_threads=max_threads, idle=0.5)
    requests = iter(range(10**9))
    ends = time.perf_counter() + seconds

    def options(rng: random.Random) -> dict:
        return {
            "budget": rng.choice([None, None, rng.uniform(0, 30)]),
            "deadline": rng.choice([None, None, rng.uniform(0.0, 0.3)]),
            "known": rng.choice([None, {"f0": 1.0}]),
            "prefetch": rng.choice(["branch", "branch", "node"]),
        }

    def caller(number: int) -> None:
        rng = random.Random(1000 + number)
        try:
            while time.perf_counter() < ends:
                request, chosen = next(requests), options(rng)
                check(ledger, request, predictor.predict(request, **chosen), chosen["budget"])
        except BaseException as error:
            ledger.problem(f"caller {number} got {error!r}")

    async def acaller(number: int) -> None:
        rng = random.Random(2000 + number)
        while time.perf_counter() < ends:
            request, chosen = next(requests), options(rng)
            task = asyncio.create_task(predictor.apredict(request, **chosen))
            if rng.random() < 0.1:
                await asyncio.sleep(rng.uniform(0, 0.01))
                if not task.cancel():
                    continue
                try:
                    await task
                except asyncio.CancelledError:
                    with ledger.lock:
                        ledger.statuses["caller's own cancellation"] += 1
                    ledger.later.append((time.perf_counter(), request, None))
                else:
                    ledger.problem(f"request {request}: the caller's cancellation was swallowed")
                continue
            check(ledger, request, await task, chosen["budget"])

    async def all_acallers() -> None:
        await asyncio.gather(*(acaller(k) for k in range(callers // 4)))

    def loop() -> None:
        try:
            asyncio.run(all_acallers())
        except BaseException as error:
            ledger.problem(f"a caller on the event loop got {error!r}")

    threads = [threading.Thread(target=caller, args=(k,)) for k in range(callers - callers // 4)]
    threads.append(threading.Thread(target=loop))
    for thread in threads:
        thread.start()
    watch(ledger, predictor, ends, seconds, max_threads, report)
    for thread in threads:
        thread.join(30)
        if thread.is_alive():
            ledger.problem("a caller was not answered within 30 s of the end")
    wind_down(ledger, predictor, before)
    return ledger


def watch(ledger: Ledger, predictor: OnDemandPredictor, ends: float, seconds: float, max_threads: int, report) -> None:
    """Look at threads and memory until the end."""
    sizes = []
    while (now := time.perf_counter()) < ends:
        ledger.most_threads = max(ledger.most_threads, predictor.n_threads)
        if now > ends - 0.75 * seconds:
            sizes.append(resident_memory())
        compare_calls(ledger, age=1.0)
        time.sleep(min(0.1, seconds / 50))
    if ledger.most_threads > max_threads:
        ledger.problem(f"{ledger.most_threads} threads, above the pool's {max_threads}")
    third = max(1, len(sizes) // 3)
    growth = statistics.median(sizes[-third:]) - statistics.median(sizes[:third]) if sizes else 0.0
    report(f"memory: {sizes[0]:.0f} MB after a quarter of the time, {growth:+.1f} MB since" if sizes else "no time")
    if growth > 16.0:
        ledger.problem(f"memory grew by {growth:.1f} MB")


def wind_down(ledger: Ledger, predictor: OnDemandPredictor, before: int) -> None:
    """Threads go once the hangs end."""
    limit = time.perf_counter() + HANG + 5.0
    while predictor.n_threads and time.perf_counter() < limit:
        time.sleep(0.05)
    if predictor.n_threads:
        ledger.problem(f"{predictor.n_threads} threads are left after the hangs have ended")
    predictor.close()
    compare_calls(ledger, age=0.0)
    while threading.active_count() > before and time.perf_counter() < limit:
        time.sleep(0.05)
    if threading.active_count() > before:
        ledger.problem(f"{threading.active_count()} threads, {before} when it began")


def resident_memory() -> float:
    """Megabytes; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
    except OSError:
        return 0.0


def faults(seconds: float, callers: int) -> int:
    ledger = soak(seconds, callers)
    answers = sum(n for status, n in ledger.statuses.items() if "own" not in status)
    print(f"{answers} answers to {callers} callers in {seconds:g} s, at most {ledger.most_threads} threads")
    print("  " + ", ".join(f"{status}: {count}" for status, count in ledger.statuses.most_common()))
    print("  faults met: " + ", ".join(f"{name}: {count}" for name, count in ledger.faults.most_common()))
    for text in ledger.problems[:20]:
        print("PROBLEM", text)
    print("no promise was broken" if not ledger.problems else f"{len(ledger.problems)} problems")
    return 1 if ledger.problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", action="store_true", help="failing sources instead of overhead")
    parser.add_argument("--seconds", type=float, default=60.0, help="of --faults")
    parser.add_argument("--callers", type=int, default=64, help="of --faults")
    parser.add_argument("--rows", type=int, default=2000, help="predictions timed")
    parser.add_argument("--rounds", type=int, default=300, help="trees of the full LightGBM model")
    options = parser.parse_args()
    if options.faults:
        return faults(options.seconds, options.callers)
    overhead(options.rows, options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
