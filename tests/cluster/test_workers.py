"""Workers of any executor: what is refused, what a failure says, what is left behind."""

import re
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from cluster.worlds import as_folder, estimator, files_of, frontier, world
from cstc import CSTCRegressor, Paper
from cstc.cluster import TaskFailed, Workers
from cstc.cluster import workers as module
from cstc.cluster.tasks import Kept
from cstc.rows import Rows, Units

ROWS = Rows(np.arange(12.0).reshape(4, 3), np.arange(4.0), np.ones(4))


class Task:
    size = 1

    def __init__(self, does, what="the task"):
        self.does, self.what = does, what

    def __call__(self):
        return self.does()


def fails(error):
    def does():
        raise error

    return does


@pytest.fixture
def pool():
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_processes_give_the_same_files_as_threads_here(tmp_path):
    X, y, _ = world("regression")
    here = files_of(frontier("regression").fit(X, y), tmp_path)
    with ProcessPoolExecutor(2) as pool:
        assert files_of(frontier("regression").fit(X, y, executor=pool), tmp_path) == here
        given = as_folder(tmp_path / "rows", "regression")
        assert files_of(frontier("regression").fit(**given, executor=pool), tmp_path) == here


@pytest.mark.parametrize("sparse", [True, False])
def test_arrays_of_single_precision_and_sparse_ones_stay_what_they_are(sparse, pool, tmp_path):
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(0)
    X = np.where(rng.random((400, 4)) < 0.5, 0, rng.normal(size=(400, 4))).astype(np.float32)
    y = X[:, 0] + X[:, 1] + 0.1 * rng.normal(size=400)
    X = csr_matrix(X) if sparse else X
    model = CSTCRegressor(costs=[1, 2, 3, 4], n_weak_learners=8, cost_weight=0.001, random_state=0)
    here = files_of(model.fit(X, y), tmp_path)
    assert files_of(model.fit(X, y, executor=pool), tmp_path) == here


@pytest.mark.parametrize("executor", ["localhost:8786", 3, object()])
def test_no_executor(executor):
    X, y, _ = world("regression", 100)
    with pytest.raises(TypeError, match=r"executor is .*give a Dask Client, an executor of concurrent.futures"):
        estimator("regression").fit(X, y, executor=executor)


@pytest.mark.parametrize(("later", "status", "said"), [(True, "running", "asynchronous"), (False, "closed", "closed")])
def test_clients_that_cannot_work(later, status, said):
    X, y, _ = world("regression", 100)
    client = SimpleNamespace(submit=None, scheduler_info=None, run=None, asynchronous=later, status=status)
    with pytest.raises(ValueError, match=f"executor is an? .*{said}"):
        estimator("regression").fit(X, y, executor=client)


def test_a_scheduler_that_is_gone(pool):
    class Gone(ThreadPoolExecutor):
        def submit(self, function, *args):
            if function is module._run:
                future = Future()
                future.set_exception(OSError("Stream is closed"))
                return future
            return super().submit(function, *args)

    said = r"the task: the scheduler of the cluster does not answer any more .*checkpoint="
    with Gone(1) as gone, Workers(gone) as workers, pytest.raises(TaskFailed, match=said):
        workers.results([Task(time.time)])


def test_scratch_needs_an_executor_and_a_folder(pool, tmp_path):
    X, y, _ = world("regression", 100)
    with pytest.raises(ValueError, match="scratch is given without an executor"):
        estimator("regression").fit(X, y, scratch=tmp_path)
    with pytest.raises(ValueError, match="is no folder"):
        estimator("regression").fit(X, y, executor=pool, scratch=tmp_path / "none")
    with pytest.raises(TypeError, match="scratch is 3"):
        frontier("regression").fit(X, y, executor=pool, scratch=3)


def test_a_scratch_without_room_says_so(pool, tmp_path, monkeypatch):
    def full(rows, folder):
        raise OSError("No space left on device")

    monkeypatch.setattr(module.InScratch, "write", full)
    with Workers(pool, tmp_path) as workers, pytest.raises(OSError, match=r"No space left.*give scratch=.*room"):
        workers.publish(ROWS, Units())
    assert not list(tmp_path.iterdir())


def test_workers_that_die_again_and_again(pool):
    class KilledWorker(Exception):
        pass

    class Deadly(ThreadPoolExecutor):
        def submit(self, function, *args):
            if function is module._run:
                future = Future()
                future.set_exception(KilledWorker())
                return future
            return super().submit(function, *args)

    said = r"the task: workers died again and again .*rows_per_fit"
    with Deadly(1) as deadly, Workers(deadly) as workers, pytest.raises(TaskFailed, match=said):
        workers.results([Task(time.time)])


def test_a_method_without_work_for_workers_says_so(pool):
    X, y = np.random.default_rng(0).normal(size=(100, 3)), np.arange(100.0)
    with pytest.raises(ValueError, match="executor is given, and Paper has no use for it"):
        CSTCRegressor(costs=[1, 2, 3], method=Paper()).fit(X, y, executor=pool)


def test_scratch_is_empty_in_the_end_also_after_an_error(pool, tmp_path, monkeypatch):
    X, y, _ = world("regression", 300)
    estimator("regression").fit(X, y, executor=pool, scratch=tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr("cstc.cluster.tasks.Grow.__call__", lambda self: 1 / 0)
    with pytest.raises(TaskFailed, match=r"the expert .*on \d columns?, fold \d of 3, on worker .*: ZeroDiv"):
        estimator("regression").fit(X, y, executor=pool, scratch=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "MemoryError; give workers more memory, or let each fit read fewer rows"),
        (RuntimeError("std::bad_alloc"), "give workers more memory"),
        (FileNotFoundError("gone.parquet"), "gone.parquet; all workers must see the files"),
        (ValueError("no reason"), "ValueError: no reason"),
    ],
)
def test_a_failure_says_where_and_what_would_help(error, said, pool):
    with Workers(pool) as workers, pytest.raises(TaskFailed, match=re.escape(said)) as failed:
        workers.results([Task(fails(error), "the expert on 3 columns, fold 2 of 5")])
    assert "the expert on 3 columns, fold 2 of 5, on worker " in str(failed.value)


def test_a_broken_pool_of_processes_says_what_would_help():
    import os
    import signal

    with ProcessPoolExecutor(1) as pool, Workers(pool) as workers:
        victim = pool.submit(os.getpid).result()
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(TaskFailed, match=r"a process of the executor was lost.*checkpoint="):
            workers.results([Task(time.time)])


def test_a_task_that_the_cluster_forgot_is_given_out_again(pool):
    class Forgetful(ThreadPoolExecutor):
        forgotten = 0

        def submit(self, function, *args):
            if function is module._run and self.forgotten < 2:
                self.forgotten += 1
                future = Future()
                future.cancel()
                future.set_running_or_notify_cancel()
                return future
            return super().submit(function, *args)

    with Forgetful(1) as forgetful, Workers(forgetful) as workers:
        assert workers.results([Task(lambda: 7)]) == [7]
        assert forgetful.forgotten == 2


def test_the_first_failure_cancels_what_is_queued():
    began, go = threading.Event(), threading.Event()
    ran = []

    def slow():
        began.set()
        go.wait(10)
        raise ValueError("late")

    with ThreadPoolExecutor(1) as pool, Workers(pool) as workers:
        tasks = [Task(slow), *[Task(lambda: ran.append(time.sleep(0.05))) for _ in range(20)]]
        threading.Thread(target=lambda: (began.wait(10), go.set())).start()
        with pytest.raises(TaskFailed, match="late"):
            workers.results(tasks)
    assert len(ran) < 20


def test_an_interrupt_cancels_what_is_queued(monkeypatch):
    """As Ctrl-C does: who waits is asked to stop."""
    X, y, _ = world("regression")
    ran = []

    def slow(self):
        ran.append(1)
        time.sleep(0.3)
        raise AssertionError

    monkeypatch.setattr("cstc.cluster.tasks.Grow.__call__", slow)
    monkeypatch.setattr("cstc.progress.Progress.draw", lambda self: ran and fails(KeyboardInterrupt())())
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyboardInterrupt):
            estimator("regression").fit(X, y, executor=pool)
        n = len(ran)
    assert len(ran) <= n + 1 < 15


def test_other_versions_are_said(pool, monkeypatch):
    monkeypatch.setattr(Workers, "_everywhere", lambda self, function, *args: {"w1": {"Python": "3.0", "numpy": "1"}})
    said = r"worker w1 has other versions: Python 3\.0 \(here .*numpy 1 \(here"
    with pytest.warns(UserWarning, match=said), Workers(pool):
        pass


def test_a_folder_that_a_worker_does_not_see(pool, tmp_path, monkeypatch):
    with Workers(pool, tmp_path) as workers:
        monkeypatch.setattr(workers, "_everywhere", lambda function, *args: {"w1": True, "w2": False})
        with pytest.raises(ValueError, match=r"worker w2 does not see .*give scratch=, a folder that all workers see"):
            workers.publish(ROWS, Units())
    assert not list(tmp_path.iterdir())


def test_a_worker_keeps_what_it_read_within_a_limit():
    kept, read = Kept(10), []

    def get(key, size):
        return kept(key, lambda: read.append(key) or key, lambda _: size)

    assert [get("a", 4), get("b", 4), get("a", 4)] == ["a", "b", "a"]
    assert read == ["a", "b"]
    get("c", 4)  # b was not asked for longest
    get("a", 4)
    assert read == ["a", "b", "c"]
    get("b", 4)
    assert read == ["a", "b", "c", "b"]
    get("large", 100)  # what is larger than the limit is kept alone
    get("large", 100)
    assert read[-1] == "large"
    assert len(read) == 5
