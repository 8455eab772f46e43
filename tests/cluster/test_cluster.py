"""A real cluster of two processes: the same files as here, whoever is killed on the way."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster

from cluster.worlds import TASKS, as_folder, estimator, files_of, frontier, world
from cstc.cluster.workers import Workers

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ports that others use
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
            yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        client.wait_for_workers(2)
        yield client


@pytest.mark.parametrize("task", TASKS)
def test_the_same_files_as_here(task, client, tmp_path):
    X, y, queries = world(task)
    here = files_of(frontier(task).fit(X, y, **queries), tmp_path)
    assert len(here) == 3
    there = frontier(task).fit(X, y, **queries, executor=client)
    assert files_of(there, tmp_path) == here
    given = as_folder(tmp_path / "rows", task)
    in_folder = frontier(task).fit(**given, executor=client)
    assert files_of(in_folder, tmp_path) == here


def test_workers_keep_nothing_after_the_fit(client):
    X, y, _ = world("regression")
    estimator("regression").fit(X, y, executor=client)
    ends = time.monotonic() + 20
    while any(client.run(kept_here).values()) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not any(client.run(kept_here).values())


def kept_here():
    from cstc.cluster.tasks import KEPT

    return len(KEPT._values)


def test_a_folder_that_was_written_anew_is_read_anew(client, tmp_path):
    """A worker may have kept rows of an earlier fit."""
    table, y, _ = world("regression")
    for sign in (1, -1):
        rows = table.append_column("target", pa.array(sign * y))
        pq.write_table(rows, tmp_path / "rows.parquet")
        there = estimator("regression").fit(tmp_path / "rows.parquet", target="target", executor=client)
        assert there.score(table, sign * y) > 0.2


def test_many_rows_are_binned_on_the_workers(client, tmp_path, monkeypatch):
    """Of many rows ensembles share bins, and one ensemble learns from all rows."""
    for name in ("cstc.lightgbm_engine.MANY_ROWS", "cstc.experts.expert.MANY_ROWS", "cstc.experts.lazy.MANY_ROWS"):
        monkeypatch.setattr(name, 1200)
    X, y, _ = world("two classes", 1200)
    here = estimator("two classes", cost_weight=0.02).fit(X, y)
    assert len(here.model_.pool.roots) < 8 * 3 * 8  # no members of folds
    given = as_folder(tmp_path / "rows", "two classes", 1200)
    for there in ({"X": X, "y": y}, given):
        found = estimator("two classes", cost_weight=0.02).fit(**there, executor=client)
        assert files_of(found, tmp_path) == files_of(here, tmp_path)


@pytest.mark.parametrize("task", ["two classes", "ranking"])
def test_samples_are_the_same_here_and_there(task, client, tmp_path):
    given = as_folder(tmp_path / "rows", task)
    options = {"rows_per_fit": 150, "cost_weight": 0.01}
    here = estimator(task, **options).fit(**given)
    assert files_of(estimator(task, **options).fit(**given, executor=client), tmp_path) == files_of(here, tmp_path)
    X, y, queries = world(task)
    here = estimator(task, **options).fit(X, y, **queries)
    there = estimator(task, **options).fit(X, y, **queries, executor=client)
    assert files_of(there, tmp_path) == files_of(here, tmp_path)


@pytest.mark.parametrize("moment", [1, 15, 30])
def test_a_worker_that_is_killed_costs_time_only(moment, client, tmp_path, monkeypatch):
    X, y, _ = world("two classes")
    here = files_of(frontier("two classes").fit(X, y), tmp_path)
    victim, given_out, plain = next(iter(client.run(os.getpid).values())), itertools.count(1), Workers.submit

    def submit(self, task):
        future = plain(self, task)
        if next(given_out) == moment:
            os.kill(victim, signal.SIGKILL)
        return future

    monkeypatch.setattr(Workers, "submit", submit)
    there = frontier("two classes").fit(X, y, executor=client)
    assert next(given_out) > moment
    assert victim not in client.run(os.getpid).values()
    assert files_of(there, tmp_path) == here


def test_a_driver_that_is_killed_goes_on_from_its_checkpoint(cluster, tmp_path):
    X, y, _ = world("two classes")
    here = files_of(frontier("two classes", n_weights=5).fit(X, y), tmp_path)
    scratch, checkpoint = tmp_path / "scratch", tmp_path / "checkpoint"
    scratch.mkdir()
    code = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(TESTS)!r})
        from distributed import Client
        from cluster.worlds import frontier, world
        X, y, _ = world("two classes")
        with Client({cluster.scheduler_address!r}) as client:
            frontier("two classes", n_weights=5, checkpoint={str(checkpoint)!r}).fit(
                X, y, executor=client, scratch={str(scratch)!r})
    """)
    process = subprocess.Popen([sys.executable, "-c", code])
    ends = time.monotonic() + 60
    while not list(checkpoint.glob("model-*.json")) and process.poll() is None and time.monotonic() < ends:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert process.returncode == -signal.SIGKILL
    done = len(list(checkpoint.glob("model-*.json")))
    assert 0 < done < 5
    with Client(cluster) as client:
        again = frontier("two classes", n_weights=5, checkpoint=checkpoint).fit(X, y, executor=client, scratch=scratch)
    assert files_of(again, tmp_path) == here


def test_what_fails_on_a_worker_says_what_where_and_what_would_help(client, tmp_path):
    given = as_folder(tmp_path / "rows", "regression")
    broken = tmp_path / "rows" / "part-1.parquet"

    def break_it(self, task, plain=Workers.submit):
        size = broken.stat().st_size
        with broken.open("r+b") as file:
            file.seek(size // 3)
            file.write(b"\\0" * (size // 3))
        return plain(self, task)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workers, "submit", break_it)
        said = r"the expert .*on \d column.*on worker tcp://.*part-1.parquet.*all workers"
        with pytest.raises(RuntimeError, match=said):
            estimator("regression").fit(**given, executor=client)
