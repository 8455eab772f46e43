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
from cstc.serving.sources.workers import WorkerPool
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


@pytest.mark.filterwarnings("ignore::cstc.UnseenValueWarning")
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
        assert (answer.status, answer.cost, answer.value) == ("failed", 3.0, 2.0)  # b, and the mean of a, which is 0
        assert answer.basis == "1 of 2 features: a failed"
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
            assert (answer.status, answer.cost, answer.value) == ("failed", 3.0, 2.0)  # nothing of a, which came late
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
from cstc.model import TreePool
from cstc.serving import OnDemandPredictor, extractor
from cstc.model import TreeShape
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


# ----------------------------------------------------------------- what was begun is paid, and counted


def counted(predictor):
    counts = predictor.counters.as_dict()
    assert counts["answers"] == sum(counts["statuses"].values())
    return counts["answers"], counts["statuses"]["stopped"], counts["spend"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_cancelled_prediction_is_counted_with_the_calls_that_had_begun(asynchronous):
    release = threading.Event()

    def slow(row):
        release.wait(5)
        return 1.0

    async def aslow(row):
        await asyncio.sleep(5)

    source = extractor(provides=["a"], timeout=10, name="slow")(aslow if asynchronous else slow)

    async def main(predictor, rows):
        for _ in range(rows):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(predictor.apredict(0), 0.05)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(predictor.apredict_many([0, 1]), 0.05)

    with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [source, GOOD_B], idle=0.1) as predictor:
        asyncio.run(main(predictor, 2))
        assert counted(predictor) == (4, 4, 12.0)
        assert predictor.counters.as_dict()["sources"]["slow"]["failures"] == {"left": 4}
        release.set()


def test_a_cancelled_call_that_never_began_is_not_paid():
    release, inside = threading.Event(), threading.Event()

    @extractor(provides=["a"], timeout=10)
    def slow(row):
        inside.set()
        release.wait(5)
        return 1.0

    async def main(predictor):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(predictor.apredict("late"), 0.05)

    with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [slow, GOOD_B], max_threads=1, idle=0.1) as predictor:
        hog = threading.Thread(target=predictor.predict, args=("hog",))
        hog.start()
        inside.wait(5)
        asyncio.run(main(predictor))
        assert counted(predictor) == (1, 1, 2.0)  # only b
        release.set()
        hog.join()


def test_rows_that_a_thread_works_on_are_counted_when_their_caller_is_cancelled():
    calls = []

    @extractor(provides=["a"], instant=True)
    def table(row):
        calls.append(row)
        time.sleep(0.01)
        return 1.0

    async def main(predictor):
        task = asyncio.create_task(predictor.apredict_many(range(500)))
        while len(calls) < 3:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with OnDemandPredictor(linear_model(CostModel({"a": 1.0}), ["a"]), [table]) as predictor:
        asyncio.run(main(predictor))
        made = len(calls)
        assert 0 < made < 400
        assert counted(predictor) == (500, 500, float(made))
        time.sleep(0.05)
        assert len(calls) == made  # nobody goes on buying


@pytest.mark.parametrize("on_loop", [False, True])
@pytest.mark.parametrize("options", [{}, {"timeout": 5.0}, {"instant": True}])
@pytest.mark.parametrize("passing", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_prediction_is_counted(passing, options, on_loop):
    with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [GOOD_B, raising(passing(), **options)]) as predictor:
        ask = (lambda: asyncio.run(predictor.apredict(0))) if on_loop else (lambda: predictor.predict(0))
        with pytest.raises(passing):
            ask()
        # an instant source raises in the caller's own thread before b is asked for
        assert counted(predictor) == (1, 1, 1.0 if options.get("instant") else 3.0)
        before = counted(predictor)[2]
        with pytest.raises(passing):
            predictor.predict_many([0, 1])
        n, stopped, spend = counted(predictor)
        assert (n, stopped) == (3, 3)
        assert spend >= before + 1.0  # at least one of the two rows came as far as the call


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signals")
def test_what_ctrl_c_interrupts_is_counted():
    release = threading.Event()

    def interrupt(number, frame):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        for options in ({"timeout": 10}, {}):
            slow = extractor(provides=["a"], name="slow", **options)(lambda row: release.wait(5))
            with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [slow, GOOD_B], idle=0.1) as predictor:
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                with pytest.raises(KeyboardInterrupt):
                    predictor.predict(0)
                assert counted(predictor) == (1, 1, 3.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, old)
        release.set()


# ------------------------------------------------------------------------------------------- closing


def two_waves(options, asynchronous=False):
    """A predictor whose second source waits for the first; between the two the predictor is closed."""
    costs = CostModel({"a": 1.0, "b": 2.0}, {"b": ["a"]})
    first = extractor(provides=["a"], name="first", instant=True)(lambda row: (predictor.close(), 1.0)[1])

    def second(row, inputs):
        return inputs["a"]

    async def asecond(row, inputs):
        return inputs["a"]

    other = extractor(provides=["b"], needs=["a"], name="second", **options)(asecond if asynchronous else second)
    predictor = OnDemandPredictor(linear_model(costs, ["a", "b"]), [first, other])
    return predictor


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("options", [{}, {"timeout": 5.0}])
def test_a_predictor_that_is_closed_between_two_waves_answers_early(options, asynchronous):
    for ask in (
        lambda predictor: [predictor.predict(0)],
        lambda predictor: [asyncio.run(predictor.apredict(0))],
        lambda predictor: predictor.predict_many([0]),
        lambda predictor: asyncio.run(predictor.apredict_many([0])),
    ):
        predictor = two_waves(options, asynchronous)
        (answer,) = ask(predictor)
        assert (answer.status, answer.reason) == ("stopped", "the predictor was closed")
        assert counted(predictor) == (1, 1, answer.cost)
        assert "second" not in predictor.counters.as_dict()["sources"]


def test_a_predictor_that_is_closed_while_a_wave_begins_answers_early():
    sources = [extractor(provides=[name], name=name, timeout=5.0)(lambda row: time.sleep(0.1) or 1.0) for name in "ab"]
    with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), sources, max_threads=1) as predictor:
        threading.Timer(0.05, predictor.close).start()  # while the first is called; the second must wait
        answer = predictor.predict(0)
        assert (answer.status, answer.cost) == ("stopped", 1.0)
        assert answer.reason.endswith(": the predictor was closed")


def test_async_calls_that_end_with_the_predictor():
    @extractor(provides=["a"], retries=3)
    async def slow(row):
        await asyncio.sleep(5)

    with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [slow, GOOD_B]) as predictor:
        threading.Timer(0.1, predictor.close).start()
        answer = predictor.predict(0)
        assert (answer.status, answer.cost, answer.reason) == ("stopped", 3.0, "slow: the predictor was closed")


def test_many_rows_of_a_predictor_that_is_closed_meanwhile():
    @extractor(provides=["a"])
    async def slow(row):
        await asyncio.sleep(0.1)
        return 1.0

    async def main(predictor):
        asyncio.get_running_loop().call_later(0.03, predictor.close)
        return await predictor.apredict_many(range(100))

    with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [slow, GOOD_B], max_threads=50) as predictor:
        answers = asyncio.run(main(predictor))
    assert {answer.status for answer in answers} == {"complete"}  # calls under way on the caller's own loop go on


@pytest.mark.parametrize("options", [{}, {"timeout": 5.0}, {"instant": True}])
def test_a_closed_predictor_makes_no_predictions(options):
    source = extractor(provides=["a"], name="one", **options)(lambda row: 1.0)
    predictor = OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [source, GOOD_B])
    predictor.close()
    predictor.close()
    for ask in (
        lambda: predictor.predict(0),
        lambda: predictor.predict_many([0]),
        lambda: asyncio.run(predictor.apredict(0)),
        lambda: asyncio.run(predictor.apredict_many([0])),
    ):
        with pytest.raises(RuntimeError, match="the predictor is closed"):
            ask()
    assert counted(predictor) == (0, 0, 0.0)


# ------------------------------------------------------------------------------------- long times


@pytest.mark.parametrize("seconds", [1e10, 1e300, float("inf")])
def test_limits_beyond_what_the_system_can_wait_for(seconds):
    timeout = min(seconds, 1e300)
    for options in ({}, {"timeout": timeout}):
        slow = extractor(provides=["a"], name="slow", **options)(lambda row: time.sleep(0.02) or 1.0)
        with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [slow, GOOD_B], idle=min(seconds, 1e300)) as predictor:
            assert predictor.predict(0, deadline=seconds).complete
            assert predictor.predict(0, deadline=seconds).complete  # by the thread that has waited
            assert asyncio.run(predictor.apredict(0, deadline=seconds)).complete
            assert predictor.predict_many([0], deadline=seconds)[0].complete


def test_a_worker_that_dies_takes_its_mailbox_along(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    pool = WorkerPool(1, idle=-1.0)  # a wait that raises
    done = []
    for k in range(3):
        pool.submit(lambda k=k: done.append(k))
        wait_until(lambda k=k: len(done) == k + 1)
        wait_until(lambda: pool.n_threads == 0)
    assert pool._resting == []


def test_strict_mode_keeps_the_cause():
    error = OSError("gone")
    with OnDemandPredictor(linear_model(COSTS, ["a", "b"]), [raising(error), GOOD_B], strict=True) as predictor:
        with pytest.raises(SourceFailed) as caught:
            predictor.predict(0)
        assert caught.value.__cause__ is error
        assert np.isfinite(caught.value.answer.value)
