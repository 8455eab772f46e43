"""Sources that fail, hang and talk nonsense: every caller is answered, and no promise is broken."""

import asyncio
import importlib.util
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError as FutureCancelledError
from pathlib import Path

import numpy as np
import pytest

from cstc.costs import CostModel
from cstc.serving import OnDemandPredictor, SourceFailed, extractor
from cstc.serving.workers import WorkerPool
from serving.worlds import linear_model

COSTS = CostModel({"a": 1.0, "b": 2.0})
GOOD_B = extractor(provides=["b"], name="good b", instant=True)(lambda row: 2.0)


def load_benchmark():
    path = Path(__file__).parents[2] / "benchmarks" / "serving.py"
    spec = importlib.util.spec_from_file_location("benchmark_serving", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def test_64_callers_and_sources_of_all_faults():
    ledger = load_benchmark().soak(4.0, callers=64, report=lambda text: None)
    assert ledger.problems == []
    assert {"complete", "failed", "budget", "deadline", "caller's own cancellation"} <= set(ledger.statuses)
    assert len(ledger.faults) == 7


def serve(source, *, on_loop=False, **options):
    """One prediction with a bad source for `a` and a good one for `b`."""
    with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [source, GOOD_B]) as predictor:
        if on_loop:
            return asyncio.run(predictor.apredict(0, **options)), predictor
        return predictor.predict(0, **options), predictor


def raising(error, **options):
    @extractor(provides=["a"], name="bad", **options)
    def fetch(row):
        raise error

    return fetch


def araising(error, **options):
    @extractor(provides=["a"], name="bad", **options)
    async def fetch(row):
        raise error

    return fetch


# ----------------------------------------------------------------------- failures and what they cost


@pytest.mark.parametrize("on_loop", [False, True])
@pytest.mark.parametrize("make", [raising, araising])
@pytest.mark.parametrize(
    "error", [OSError("gone"), asyncio.CancelledError(), FutureCancelledError(), TimeoutError(), AssertionError()]
)
def test_what_a_source_raises_is_its_own_failure(make, error, on_loop):
    for options in ({}, {"timeout": 5.0}):
        answer, predictor = serve(make(error, **options), on_loop=on_loop)
        assert (answer.status, answer.cost, answer.value) == ("failed", 3.0, 0.0)
        assert answer.reason.startswith(f"bad: {type(error).__name__}")
        assert answer.error is error
        kind = "cancelled" if isinstance(error, asyncio.CancelledError) else "error"
        assert predictor.counters.as_dict()["sources"]["bad"]["failures"] == {kind: 1}


def test_instant_sources_fail_in_the_same_way():
    for error in (OSError("gone"), asyncio.CancelledError()):
        answer, _ = serve(raising(error, instant=True))
        assert (answer.status, answer.cost) == ("failed", 3.0)


@pytest.mark.parametrize("on_loop", [False, True])
@pytest.mark.parametrize("passing", [KeyboardInterrupt, SystemExit])
def test_what_belongs_to_the_caller_passes_through(passing, on_loop):
    for source in (raising(passing()), raising(passing(), timeout=5.0), raising(passing(), instant=True)):
        with pytest.raises(passing):
            serve(source, on_loop=on_loop)
    with pytest.raises(passing):
        serve(araising(passing()), on_loop=on_loop)
    with pytest.raises(passing):
        with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [raising(passing()), GOOD_B]) as predictor:
            predictor.predict_many([1, 2])


@pytest.mark.parametrize("on_loop", [False, True])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_source_that_hangs_is_given_up_and_charged(asynchronous, on_loop):
    release = threading.Event()
    if asynchronous:

        @extractor(provides=["a"], name="bad", timeout=0.1)
        async def slow(row):
            while not release.is_set():
                await asyncio.sleep(0.01)
            return 1.0
    else:

        @extractor(provides=["a"], name="bad", timeout=0.1)
        def slow(row):
            release.wait(10)
            return 1.0

    began = time.perf_counter()
    answer, _ = serve(slow, on_loop=on_loop)
    assert time.perf_counter() - began < 3.0
    release.set()
    assert (answer.status, answer.cost) == ("failed", 3.0)
    assert answer.reason == "bad: TimeoutError: no answer within 0.1 s"
    assert 0.09 < next(e["latency"] for e in answer.trail if e["source"] == "bad") < 3.0


@pytest.mark.parametrize("options", [dict(), dict(timeout=5.0), dict(instant=True), dict(batch=True)])
def test_retries_are_made_and_not_charged_again(options):
    calls = []

    @extractor(provides=["a"], name="moody", retries=2, **options)
    def moody(row):
        calls.append(row)
        if len(calls) < 3:
            raise OSError("busy")
        return [1.0] if options.get("batch") else 1.0

    answer, _ = serve(moody)
    assert (answer.status, answer.cost, answer.value, len(calls)) == ("complete", 3.0, 3.0, 3)
    calls.clear()
    answer, _ = serve(moody, on_loop=True)
    assert (answer.status, answer.cost, len(calls)) == ("complete", 3.0, 3)


def test_without_retries_a_failed_call_is_not_repeated():
    calls = []

    @extractor(provides=["a"])
    def bad(row):
        calls.append(row)
        raise OSError("gone")

    serve(bad)
    assert calls == [0]


def test_in_a_batch_only_the_failed_rows_are_tried_again_and_lost():
    calls = []

    @extractor(provides=["a"], batch=True, retries=1)
    def moody(rows):
        calls.append(list(rows))
        return [OSError("not this one") if row % 3 == 2 or (row % 3 == 1 and len(calls) == 1) else 1.0 for row in rows]

    with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [moody, GOOD_B]) as predictor:
        answers = predictor.predict_many(range(6))
    assert calls == [[0, 1, 2, 3, 4, 5], [1, 2, 4, 5]]
    assert [answer.status for answer in answers] == ["complete", "complete", "failed"] * 2
    assert [answer.cost for answer in answers] == [3.0] * 6


@pytest.mark.parametrize("result", [None, [1.0], {"a": [1.0]}, "text", 7])
def test_a_batch_of_nonsense_fails_for_all_its_rows(result):
    bad = extractor(provides=["a"], batch=True)(lambda rows: result)
    with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [bad, GOOD_B]) as predictor:
        assert [answer.status for answer in predictor.predict_many(range(3))] == ["failed"] * 3


# ------------------------------------------------------------------------------------ threads


def test_a_call_that_waits_in_line_in_vain_was_not_made_and_costs_nothing():
    release, inside = threading.Event(), threading.Event()
    calls = []

    @extractor(provides=["a"], timeout=0.2)
    def slow(row):
        calls.append(row)
        inside.set()
        release.wait(10)
        return 1.0

    with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [slow, GOOD_B], max_threads=1, idle=0.1) as predictor:
        hog = threading.Thread(target=predictor.predict, args=("hog",))
        hog.start()
        inside.wait(5)
        answer = predictor.predict("late")
        assert (answer.status, answer.cost) == ("failed", 2.0)  # only b
        assert answer.reason == "slow: no thread was free in time"
        late = asyncio.run(predictor.apredict("later", deadline=0.1))
        assert (late.status, late.cost) == ("deadline", 2.0)
        assert predictor._caller.pool.n_waiting == 0
        assert predictor.n_threads == 1
        assert predictor.counters.as_dict()["sources"]["slow"]["not_made"] == 2
        release.set()
        hog.join()
        assert calls == ["hog"]
        wait_until(lambda: predictor.n_threads == 0)
        assert predictor.predict("again").complete


def wait_until(condition, seconds=5.0):
    limit = time.perf_counter() + seconds
    while not condition():
        assert time.perf_counter() < limit
        time.sleep(0.01)


def test_late_results_do_no_harm():
    # both calls of the wave time out at different moments; the first one's result comes while the second is awaited
    @extractor(provides=["a"], timeout=0.05)
    def early(row):
        time.sleep(0.1)
        return 1.0

    @extractor(provides=["b"], timeout=0.3)
    def late(row):
        time.sleep(0.2)
        return 2.0

    with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [early, late]) as predictor:
        for answer in (predictor.predict(0), asyncio.run(predictor.apredict(0))):
            assert (answer.status, answer.cost, answer.value) == ("failed", 3.0, 0.0)
            outcomes = [entry["outcome"] for entry in answer.trail]
            assert outcomes == ["failed: early: TimeoutError: no answer within 0.05 s", "ok"]


def test_threads_end_with_the_predictor():
    before = set(threading.enumerate())
    source = extractor(provides=["a"], timeout=5.0)(lambda row: 1.0)

    @extractor(provides=["b"])
    async def other(row):
        return 2.0

    with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [source, other]) as predictor:
        assert predictor.predict(0).complete
        assert set(threading.enumerate()) - before
    wait_until(lambda: not set(threading.enumerate()) - before)
    with pytest.raises(RuntimeError, match="the predictor is closed"):
        predictor.predict(0)


def test_the_pool_keeps_its_order_and_its_size():
    pool = WorkerPool(2, idle=0.05)
    gate, done = threading.Event(), []
    for k in range(6):
        pool.submit(lambda k=k: (gate.wait(5), done.append(k)))
    assert pool.n_threads == 2
    assert pool.n_waiting == 4
    withdrawn = pool.submit(lambda: done.append("never"))
    assert withdrawn.withdraw()
    assert not withdrawn.withdraw()
    gate.set()
    wait_until(lambda: len(done) == 6)
    wait_until(lambda: pool.n_threads == 0)
    assert sorted(done) == list(range(6))
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(print)


def test_a_hanging_source_does_not_keep_the_interpreter():
    program = """
import time, numpy as np
from cstc import CostModel
from cstc.model import FittedTree, Schema
from cstc.pool import TreePool
from cstc.serving import OnDemandPredictor, extractor
from cstc.tree import TreeShape
import sys
hang = extractor(provides=["a"], timeout=0.1)(lambda row: time.sleep(60))
model = FittedTree(TreePool.identity(1), TreeShape.full(1), np.ones((1, 1, 1)), np.zeros((1, 1)), np.zeros((1, 1)),
    np.zeros(1), np.zeros(1), CostModel([1.0]).resolve(["a"]), "identity", Schema(["a"], {}, np.zeros(1, dtype=bool)))
print(OnDemandPredictor(model, [hang]).predict(0).status)
for heavy in ("sklearn", "scipy", "lightgbm", "narwhals", "pandas"):
    assert heavy not in sys.modules, heavy
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (done.stdout.strip(), done.stderr) == ("failed", "")


# ----------------------------------------------------------------------------------- cancellation


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_callers_own_cancellation_passes_through(asynchronous):
    release = threading.Event()
    began, cancelled = threading.Event(), threading.Event()
    if asynchronous:

        @extractor(provides=["a"], timeout=10)
        async def slow(row):
            began.set()
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                cancelled.set()
                raise
    else:

        @extractor(provides=["a"], timeout=10)
        def slow(row):
            began.set()
            release.wait(10)
            return 1.0

    async def main(predictor):
        task = asyncio.create_task(predictor.apredict(0))
        await asyncio.to_thread(began.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.01)

    with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [slow, GOOD_B], idle=0.1) as predictor:
        asyncio.run(main(predictor))
        assert cancelled.is_set() == asynchronous
        release.set()
        wait_until(lambda: predictor.n_threads == 0)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signals")
def test_ctrl_c_while_waiting_for_a_source():
    release = threading.Event()

    @extractor(provides=["a"], timeout=10)
    def slow(row):
        release.wait(10)
        return 1.0

    def interrupt(number, frame):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [slow, GOOD_B], idle=0.1) as predictor:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            began = time.perf_counter()
            with pytest.raises(KeyboardInterrupt):
                predictor.predict(0)
            assert time.perf_counter() - began < 3.0
            release.set()
            wait_until(lambda: predictor.n_threads == 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, old)


def test_strict_mode_keeps_the_cause():
    error = OSError("gone")
    with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [raising(error), GOOD_B], strict=True) as predictor:
        with pytest.raises(SourceFailed) as caught:
            predictor.predict(0)
        assert caught.value.__cause__ is error
        assert np.isfinite(caught.value.answer.value)
