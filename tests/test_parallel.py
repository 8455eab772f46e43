"""Independent fits side by side: the same results in the same order, and an end when one of them fails."""

import threading
import time
from functools import partial

import numpy as np
import pytest
import sklearn

from cstc import CSTCClassifier
from cstc.parallel import PATIENCE, Stopped, apart, idle_workers, n_workers, side_by_side, stop_if_asked


def test_results_come_in_the_order_of_the_tasks():
    def task(number):
        time.sleep(0.02 * (number % 3))
        return number

    tasks = [partial(task, number) for number in range(9)]
    assert side_by_side(tasks, 3) == side_by_side(tasks, 1) == list(range(9))
    assert side_by_side([], 3) == []


def test_tasks_run_at_the_same_time():
    meet = threading.Barrier(2, timeout=20)
    assert side_by_side([meet.wait, meet.wait], 2) != [0, 0]  # alone, each would wait for the other in vain


def test_tasks_of_a_task_run_one_after_the_other():
    def outer():
        return side_by_side([threading.get_ident, threading.get_ident], 2)

    first, second = side_by_side([outer, outer], 2)
    assert len(set(first)) == len(set(second)) == 1


def test_who_has_nobody_beside_it_may_take_all_threads():
    assert idle_workers(3) == apart(lambda: idle_workers(3)) == 3
    assert side_by_side([lambda: idle_workers(3)], 3) == [3]
    assert side_by_side([lambda: idle_workers(3)] * 2, 3) == [1, 1]


def test_where_one_fails_the_others_stop():
    started = threading.Event()
    ended = []

    def fails():
        started.wait(20)
        raise ValueError("no rows")

    def goes_on():
        started.set()
        for _ in range(2000):
            time.sleep(0.01)
            try:
                stop_if_asked()
            except Stopped:
                ended.append("stopped")
                raise

    with pytest.raises(ValueError, match="no rows"):
        side_by_side([fails, goes_on], 2)
    assert ended == ["stopped"]
    stop_if_asked()  # outside of tasks nobody asks


def test_the_first_error_is_raised_and_those_that_follow_are_not():
    both = threading.Barrier(2, timeout=20)

    def first():
        both.wait()
        raise ValueError("first")

    def second():
        both.wait()
        while True:
            try:
                stop_if_asked()
            except Stopped:
                raise RuntimeError("while stopping") from None
            time.sleep(0.01)

    for tasks in ([first, second], [second, first]):
        with pytest.raises(ValueError, match="first"):
            side_by_side(tasks, 2)


def test_tasks_that_wait_for_their_turn_are_not_begun_after_an_error():
    begun = []

    def fails():
        raise ValueError("no rows")

    def waits():
        time.sleep(0.2)

    with pytest.raises(ValueError, match="no rows"):
        side_by_side([fails, waits, *[partial(begun.append, number) for number in range(50)]], 2)
    assert begun == []


@pytest.mark.parametrize("outer", [apart, lambda task: task()], ids=["apart", "here"])
def test_who_waits_leaves_tasks_behind_that_do_not_hear(outer):
    release, ended = threading.Event(), threading.Event()

    def deaf():
        release.wait(60)
        try:
            stop_if_asked()
        except Stopped:
            ended.set()
            raise

    def fails():
        time.sleep(0.05)
        raise KeyboardInterrupt

    started = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        outer(lambda: side_by_side([deaf, fails], 2))
    assert PATIENCE <= time.perf_counter() - started < PATIENCE + 5
    release.set()
    assert ended.wait(20)  # it stops as soon as it hears


def test_apart_runs_in_a_thread_that_is_like_the_one_that_calls():
    calls = []

    def task():
        time.sleep(0.5)
        inside = side_by_side([threading.get_ident, threading.get_ident, partial(time.sleep, 0.1)], 2)
        return threading.get_ident(), sklearn.get_config()["assume_finite"], inside

    with sklearn.config_context(assume_finite=True):
        ident, assume_finite, inside = apart(task, lambda: calls.append(threading.get_ident()))
    assert ident != threading.get_ident()
    assert assume_finite
    assert ident not in inside  # tasks of it still run side by side
    assert set(calls) == {threading.get_ident()}
    with pytest.raises(ZeroDivisionError):
        apart(lambda: 1 / 0)


def test_what_is_stopped_stops_all_that_it_runs():
    heard = []

    def long():
        try:
            while True:
                time.sleep(0.01)
                stop_if_asked()
        except Stopped:
            heard.append(1)
            raise

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apart(lambda: side_by_side([long, long], 2), interrupt)
    time.sleep(0.1)
    assert heard == [1, 1]


def test_number_of_threads(monkeypatch):
    monkeypatch.setattr("cstc.parallel.usable_cores", lambda: 7)
    assert [n_workers(n_jobs) for n_jobs in (None, -1, 1, 3)] == [7, 7, 1, 3]


def test_the_same_model_whatever_the_number_of_threads():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 5))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=1200) > 0).astype(int)
    options = {"costs": [1, 2, 3, 4, 5], "cost_weight": 0.01, "n_weak_learners": 15, "random_state": 0}
    one, three = (CSTCClassifier(n_jobs=n_jobs, **options).fit(X, y) for n_jobs in (1, 3))
    np.testing.assert_array_equal(one.predict_proba(X), three.predict_proba(X))
    np.testing.assert_array_equal(one.predict_cost(X), three.predict_cost(X))
    assert one.candidates_[0] == three.candidates_[0]
