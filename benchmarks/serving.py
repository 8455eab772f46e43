"""Serving on demand: what it costs beyond the sources' own time, and what it does when sources fail.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/serving.py            # overhead of a prediction
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/serving.py --faults   # 64 callers, failing sources, 60 s

Overhead.  CSTC models of 20 features are served by 20 and by 5 sources; beside them, in alternating blocks of the same
run, one-row ``Booster.predict`` of a full LightGBM model.  With sources that answer from memory the overhead is all
time outside of them.  With sources of 5 ms it is the time beyond waiting, and waiting is what one wait takes on this
machine, alone, times the number of waves.  A cascade shows predictions of many waves.

Faults.  Sources raise, hang, are cancelled, and return NaN, text, too many or too few values, under callers in threads
and on an event loop, with budgets and deadlines, some of them cancelled.  Every promise is checked for every answer.
"""

from __future__ import annotations

import argparse
import asyncio
import os
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
from sklearn.datasets import make_classification
from sklearn.metrics import roc_auc_score

import cstc
from cstc.model import FittedTree, TreeShape
from cstc.serving import Answer, OnDemandPredictor, extractor

# ------------------------------------------------------------------------------------------ overhead

N_FEATURES = 20
WAIT = 0.005  # seconds that a slow source takes
N_STAGES = 8
CASCADE = f"cascade of {N_STAGES}"
#: Where the sources wait, and their time limit.
SETTINGS = (("thread", None), ("thread", 2.0), ("async", None), ("async", 2.0))


def make_data(n: int = 6000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, N_FEATURES))
    y = X[:, 0] + np.sin(3 * X[:, 1]) + X[:, 2] * X[:, 3] + 0.5 * (X[:, 4] > 0) * X[:, 5] + 0.3 * rng.normal(size=n)
    return X, y, rng.choice([1.0, 5.0, 20.0], size=N_FEATURES)


def groups_of(n_sources: int) -> dict[str, list[int]]:
    """So many sources that share the columns evenly."""
    return {f"source {k}": list(range(k, N_FEATURES, n_sources)) for k in range(n_sources)}


def sources_over(rows: list[list[float]], groups: dict[str, list[int]], kind: str = "memory", **options) -> list:
    """Sources that answer from memory, after a wait in their thread, or after a wait on the event loop."""

    def source(name: str, columns: list[int]):
        names = [f"x{j}" for j in columns]

        def look_up(i):
            row = rows[i]
            return {name: row[j] for name, j in zip(names, columns, strict=True)}

        def fetch(i):
            time.sleep(WAIT)
            return look_up(i)

        async def afetch(i):
            await asyncio.sleep(WAIT)
            return look_up(i)

        function = {"memory": look_up, "thread": fetch, "async": afetch}[kind]
        return extractor(provides=names, name=name, instant=kind == "memory", **options)(function)

    return [source(name, columns) for name, columns in groups.items()]


def cascade(X: np.ndarray, costs: np.ndarray, n_stages: int) -> FittedTree:
    """A chain of nodes, each with boosted trees over features of its own: one wave for each node that a row reaches."""
    names = [f"x{j}" for j in range(N_FEATURES)]
    groups = [list(range(k, N_FEATURES, n_stages)) for k in range(n_stages)]
    parameters = {
        "objective": "regression",
        "num_leaves": 8,
        "verbosity": -1,
        "num_threads": 1,
        "interaction_constraints": groups,  # a tree looks at the features of one group only
    }
    data = lightgbm.Dataset(X, X.sum(axis=1), feature_name=names)
    single = cstc.from_lightgbm(lightgbm.train(parameters, data, 10 * n_stages), costs)
    uses = single.pool.learner_uses(np.eye(N_FEATURES, dtype=bool))
    stage = np.array([next(k for k, group in enumerate(groups) if row[group].any()) for row in uses])
    nodes = np.arange(n_stages)
    own = (stage[:, None] == nodes).astype(float)
    route = own * (nodes < n_stages - 1)
    outputs = single.pool.outputs(X, single.pool.leaves(X, np.arange(len(stage))))
    return replace(
        single,
        shape=TreeShape.chain(n_stages),
        predict_weights=(stage[:, None] <= nodes)[:, :, None].astype(float),
        predict_intercepts=np.repeat(single.predict_intercepts, n_stages, axis=0),
        route_weights=route,
        thresholds=np.quantile(outputs @ route, 0.1, axis=0),  # nine rows of ten go on
    )


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
            predictor = OnDemandPredictor(model, sources_over(rows, groups_of(n_sources)))
            functions[f"{name}, {n_sources} sources"] = predictor.predict
    compare(functions, min(n_rows, 200))  # warm up
    medians = compare(functions, n_rows)
    base = medians.pop("Booster.predict")
    print(f"\nsources in memory, {n_rows} rows: one-row Booster.predict takes {base * 1e6:.0f} us")
    for name, seconds in medians.items():
        print(f"  {name:<42} overhead {seconds * 1e6:6.0f} us   {seconds / base:5.2f} x Booster.predict")


# -- sources of some milliseconds


def waves_of(answer: Answer) -> list[list[str]]:
    """The sources that were called together."""
    waves: dict[int, list[str]] = defaultdict(list)
    for entry in answer.trail:
        if entry["event"] == "bought" and entry["source"]:
            waves[entry["wave"]].append(entry["source"])
    return list(waves.values())


class Hands:
    """The same calls, wave by wave, with the same primitives and no model."""

    def __init__(self, sources: list, timeout: float | None) -> None:
        self._functions = {source.name: source.function for source in sources}
        self._timeout = timeout
        self._pool = ThreadPoolExecutor(32)

    def fetch(self, i: int, waves: list[list[str]]) -> None:
        for names in waves:
            if self._timeout is None:  # this thread has no clock to watch, and makes one of the calls
                futures = [self._pool.submit(self._functions[name], i) for name in names[1:]]
                self._functions[names[0]](i)
            else:
                futures = [self._pool.submit(self._functions[name], i) for name in names]
            for future in futures:
                future.result(self._timeout)

    async def afetch(self, i: int, waves: list[list[str]]) -> None:
        for names in waves:
            async with asyncio.timeout(self._timeout):
                await asyncio.gather(*(self._functions[name](i) for name in names))


@dataclass
class Times:
    """How many waves each row had, and seconds."""

    waves: list[int] = field(default_factory=list)
    predict: list[float] = field(default_factory=list)
    by_hand: list[float] = field(default_factory=list)
    wait: list[float] = field(default_factory=list)  # one wait, alone

    def report(self, name: str) -> None:
        """Medians over the rows; overhead is what is beyond the waits of a row, as this machine makes them."""
        waits = np.array(self.waves) * np.median(self.wait)
        text = f"  {name:<30}{np.mean(self.waves):5.1f}"
        for seconds in (self.predict, self.by_hand):
            total = np.array(seconds)
            lost = total - waits
            share = 100 * np.median(lost / total)
            text += f"{1000 * np.median(total):12.2f} ms{1e6 * np.median(lost):7.0f} us{share:7.2f}%"
        print(text, flush=True)


def from_a_thread(predictor: OnDemandPredictor, hands: Hands, n_rows: int) -> Times:
    """Row by row in turn: the predictor, the calls by hand, one wait alone."""
    times = Times()
    predictor.predict(0)
    for i in range(n_rows):
        began = time.perf_counter()
        answer = predictor.predict(i)
        times.predict.append(time.perf_counter() - began)
        waves = waves_of(answer)
        times.waves.append(len(waves))
        began = time.perf_counter()
        hands.fetch(i, waves)
        times.by_hand.append(time.perf_counter() - began)
        began = time.perf_counter()
        time.sleep(WAIT)
        times.wait.append(time.perf_counter() - began)
    return times


async def from_a_loop(predictor: OnDemandPredictor, hands: Hands, n_rows: int) -> Times:
    """The same for async sources."""
    times = Times()
    await predictor.apredict(0)
    for i in range(n_rows):
        began = time.perf_counter()
        answer = await predictor.apredict(i)
        times.predict.append(time.perf_counter() - began)
        waves = waves_of(answer)
        times.waves.append(len(waves))
        began = time.perf_counter()
        await hands.afetch(i, waves)
        times.by_hand.append(time.perf_counter() - began)
        began = time.perf_counter()
        await asyncio.sleep(WAIT)
        times.wait.append(time.perf_counter() - began)
    return times


def with_slow_sources(models: dict[str, FittedTree], X: np.ndarray, n_rows: int) -> None:
    """Each setting beside the same calls by hand, and beside waiting alone, which is the sources' own time.

    A thread that wakes up after some milliseconds finds its caches cold, and handing work to another costs much by
    itself: what the calls by hand lose is lost to every server on this machine.
    """
    print(f"\nsources of {1000 * WAIT:g} ms, medians of {n_rows} rows; overhead: beyond waiting itself")
    print(f"  {'':<30}waves        predict   overhead                by hand   overhead")
    rows = X.tolist()
    for name, model in models.items():
        print(f"  {name}")
        for n_sources in (N_STAGES, N_FEATURES) if name == CASCADE else (1, 5):
            for kind, timeout in SETTINGS:
                sources = sources_over(rows, groups_of(n_sources), kind, timeout=timeout)
                hands = Hands(sources, timeout)
                with OnDemandPredictor(model, sources) as predictor:
                    if kind == "thread":
                        times = from_a_thread(predictor, hands, n_rows)
                    else:
                        times = asyncio.run(from_a_loop(predictor, hands, n_rows))
                many = f"{n_sources} source{'s' * (n_sources > 1)}, {kind}"
                times.report(f"  {many}" + ("" if timeout is None else f", {timeout:g} s"))


def overhead(n_rows: int, rounds: int) -> None:
    X, y, costs = make_data()
    data = lightgbm.Dataset(X, y, feature_name=[f"x{j}" for j in range(N_FEATURES)])
    booster = lightgbm.train({"objective": "regression", "verbosity": -1, "num_threads": 1}, data, rounds)
    machine = platform.processor() or platform.machine()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"Python {platform.python_version()}, LightGBM {lightgbm.__version__}, {os.cpu_count()} x {machine}{load}")
    print(f"full LightGBM model: {booster.num_trees()} trees of 31 leaves on {N_FEATURES} features")
    models = {}
    for weight in (0.0005, 0.005):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # convergence is not what is measured here
            estimator = cstc.CSTCRegressor(costs=costs, cost_weight=weight, random_state=0, n_jobs=1).fit(X, y)
        models[f"CSTC, cost_weight={weight:g}"] = estimator.model_
    models[CASCADE] = cascade(X, costs, N_STAGES)
    for name, model in models.items():
        learners = model.terminal_learners[model.apply(X)].sum(axis=1).mean()
        nodes = f"{model.shape.n_nodes} node" + "s" * (model.shape.n_nodes > 1)
        print(f"{name}: {nodes}, {learners:.0f} learners per row, ", end="")
        print(f"cost {model.predict_cost(X).mean():.1f} of {costs.sum():.0f}")
    in_memory(models | {"the LightGBM model itself": cstc.from_lightgbm(booster, costs)}, booster, X, n_rows)
    with_slow_sources(models, X, max(40, n_rows // 20))


# -------------------------------------------------------------------------------------------- faults

N_SOAKED = 8  # features
GROUPS = {"age": [0], "vitals": [1, 2], "lab": [3, 4, 5], "scan": [6], "history": [7]}
HANG = 1.0  # seconds; the timeouts are shorter


def soak_model() -> FittedTree:
    """Three nodes over one boosted ensemble: gates on some of its trees, predictors on others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, N_SOAKED))
    names = [f"f{j}" for j in range(N_SOAKED)]
    data = lightgbm.Dataset(X, X @ rng.normal(size=N_SOAKED) + X[:, 0] * X[:, 3], feature_name=names)
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


def quality_under_faults(n_rows: int = 2000, seed: int = 0) -> None:
    """AUC of a trained model whose sources misbehave like those of the soak, and what it was when answers stopped.

    Before, a row was answered by the last node on its path that needed nothing that had failed, else by the constant.
    """
    X, y = make_classification(6000, N_SOAKED, n_informative=6, n_redundant=2, class_sep=0.7, random_state=seed)
    sources = {name: [f"x{j}" for j in columns] for name, columns in GROUPS.items()}
    prices = [1.0, 2.0, 2.0, 4.0, 4.0, 4.0, 8.0, 3.0]
    method = cstc.Experts(sources=sources)
    model = cstc.CSTCClassifier(costs=prices, cost_weight=0.005, method=method, random_state=seed)
    tree = model.fit(X[:4000], y[:4000]).model_
    rows, labels = X[4000 : 4000 + n_rows], y[4000 : 4000 + n_rows]
    ledger, rng = Ledger(), random.Random(seed)

    def source(name: str, columns: list[int]):
        def fetch(row):
            seconds, result = misbehave(rng, ledger, columns)
            if isinstance(result, BaseException) or seconds == HANG:
                raise result if isinstance(result, Exception) else TimeoutError("no answer")
            good = isinstance(result, dict) and all(np.isfinite(v) for v in result.values() if not isinstance(v, str))
            good = good and len(result) == len(columns) and not any(isinstance(v, str) for v in result.values())
            return {f"x{j}": float(rows[row, j]) for j in columns} if good else result

        return extractor(provides=[f"x{j}" for j in columns], name=name)(fetch)

    with OnDemandPredictor(tree, [source(*group) for group in GROUPS.items()]) as predictor:
        answers = [predictor.predict(row) for row in range(len(rows))]
    now = [answer.probabilities[1] for answer in answers]
    before = [_as_before(tree, row, answer) for row, answer in zip(rows, answers, strict=True)]
    broken = sum(not answer.complete for answer in answers) / len(answers)
    print(f"AUC of {len(rows)} rows, {100 * broken:.0f}% of which met a fault: {roc_auc_score(labels, now):.3f}")
    healthy = roc_auc_score(labels, tree.predict_proba(rows)[:, 1])
    print(f"  before: {roc_auc_score(labels, before):.3f}; without faults {healthy:.3f}")


def _as_before(tree: FittedTree, row: np.ndarray, answer: Answer) -> float:
    """The probability that a row got when a failure ended it."""
    if answer.complete:
        return answer.probabilities[1]
    index = {name: j for j, name in enumerate(tree.schema.feature_names)}
    failed = np.zeros(len(index), dtype=bool)
    for entry in answer.trail:
        if entry["event"] == "bought" and entry["outcome"].startswith("failed"):
            failed[[index[name] for name in entry["features"]]] = True
    path = np.flatnonzero(tree.shape.paths[tree.apply(row[None, :])[0]])
    margin = tree.constant[0]
    for node in path:
        if not (tree.expert_features[node] & failed).any():
            weights = tree.predict_weights[:, node]
            margin = (tree.pool.scores(row[None, :], weights) + tree.predict_intercepts[node])[0, 0]
        if (tree.route_features[node] & failed).any():
            break
    return float(1 / (1 + np.exp(-margin)))


def faults(seconds: float, callers: int) -> int:
    quality_under_faults()
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
