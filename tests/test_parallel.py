"""Independent fits side by side: the same results in the same order, and an end when one of them fails."""

import threading
import time
from functools import partial

import numpy as np
import pytest

from cstc import CSTCClassifier
from cstc.parallel import Stopped, n_workers, side_by_side, stop_if_asked


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
