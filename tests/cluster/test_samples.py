"""Samples: rows that judge teach nothing, all others teach, and queries stay whole."""

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.worlds import as_folder, estimator, world
from cstc.cluster import InFolder, InMemory, Part, core_of_folder, core_of_rows
from cstc.cluster import samples as module
from cstc.folders import Folder, RowGroup
from cstc.rows import Rows


def rows_of(n, sizes=None):
    qid = None if sizes is None else np.repeat(np.arange(len(sizes)), sizes)
    rows = Rows(np.zeros((n, 1)), np.zeros(n), np.ones(n), qid)
    return Rows(rows.X, rows.y, rows.weights, qid, Part(InMemory(rows)))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=20, max_size=60), st.booleans(), st.integers(20, 60))
def test_rows_that_judge_teach_nothing_and_all_others_do(sizes, by_query, n_per_fit):
    n = sum(sizes)
    rows = rows_of(n, sizes if by_query else None)
    core, samples = core_of_rows(rows, n_per_fit)
    assert 0 < len(core) <= n_per_fit
    seen = [samples.of(number).numbers() for number in range(3 * (n // n_per_fit + 2))]
    assert max(map(len, seen)) <= n_per_fit
    left = n - len(core)
    assert min(map(len, seen)) >= min(n_per_fit, left) - (2 * max(sizes) if by_query else 0)
    taught = set(np.concatenate(seen).tolist())
    assert not taught & set(core.tolist())
    assert taught | set(core.tolist()) == set(range(n))
    if not by_query:
        k = (n - len(core)) // n_per_fit  # so many samples in a row have nothing in common
        assert len(np.unique(np.concatenate(seen[:k] or [seen[0]]))) == sum(map(len, seen[:k] or [seen[0]]))
    else:
        for part in (core, *seen):
            for query in np.unique(rows.qid[part]):
                assert (rows.qid[part] == query).sum() == sizes[query]


def folder_of(sizes):
    return Folder("/nowhere", tuple(RowGroup("one.parquet", k, n) for k, n in enumerate(sizes)), ("a", "t", "q"))


def rows_in(stored):
    starts = np.cumsum([0, *(group.n_rows for group in stored.folder.groups)])
    return np.concatenate([np.arange(starts[p.place] + p.first, starts[p.place] + p.end) for p in stored._pieces])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=4, max_size=30), st.integers(20, 90))
def test_row_groups_of_a_folder(sizes, n_per_fit):
    n = sum(sizes)
    if n <= n_per_fit or sum(size > 0 for size in sizes) < 2:
        return
    core, samples = core_of_folder(InFolder(folder_of(sizes), "t"), n_per_fit, None)
    judges = rows_in(core)
    assert 0 < len(judges) <= min(n_per_fit, n)
    seen = [rows_in(samples.of(number).stored) for number in range(4 * (n // n_per_fit + len(sizes) + 1))]
    assert max(map(len, seen)) <= n_per_fit
    taught = np.concatenate(seen)
    assert not set(taught.tolist()) & set(judges.tolist())
    assert set(taught.tolist()) | set(judges.tolist()) == set(range(n))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=30, max_size=60), st.integers(5, 40), st.integers(30, 80))
def test_queries_that_row_groups_cut_are_left_out(queries, rows_of_a_group, n_per_fit):
    qid = np.repeat(np.arange(len(queries)), queries)
    n = len(qid)
    if n <= n_per_fit:
        return
    sizes = [min(rows_of_a_group, n - start) for start in range(0, n, rows_of_a_group)]
    starts = np.cumsum([0, *sizes])

    class Columns(Folder):
        def read(self, columns=None, groups=None):
            (place,) = groups
            return {"q": qid[starts[place] : starts[place + 1]]}

    plain = folder_of(sizes)
    folder = Columns(plain.path, plain.groups, plain.columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_LOST", 1.0)
        try:
            core, samples = core_of_folder(InFolder(folder, "t"), n_per_fit, "q")
        except ValueError:  # nearly all queries are cut
            assert rows_of_a_group < 30
            return
    parts = [rows_in(core), *(rows_in(samples.of(number).stored) for number in range(50))]
    for part in parts:
        for query in np.unique(qid[part]):
            assert (qid[part] == query).sum() == queries[query]
    assert not set(np.concatenate(parts[1:]).tolist()) & set(parts[0].tolist())


def test_queries_that_are_larger_than_a_fit_are_refused():
    with pytest.raises(ValueError, match=r"rows_per_fit=100 is too small: a query has 120 rows.*give 1200 or more"):
        core_of_rows(rows_of(500, [120] + [38] * 10), 100)


def test_further_rows_with_other_targets_are_others(tmp_path):
    """A checkpoint of the one does not go on with the other."""
    given = as_folder(tmp_path / "rows", "regression")
    stored = InFolder(Folder.open(given["X"]), "target")
    _, samples = core_of_folder(stored, 150, None)
    before = samples.identity()
    assert before == core_of_folder(stored, 150, None)[1].identity()
    table = pq.read_table(tmp_path / "rows/part-1.parquet")
    changed = table.set_column(table.column_names.index("target"), "target", pc.negate(table["target"]))
    pq.write_table(changed, tmp_path / "rows/part-1.parquet", row_group_size=70)
    assert core_of_folder(stored, 150, None)[1].identity() != before


def test_row_groups_that_cut_many_queries_are_said(tmp_path):
    given = as_folder(tmp_path / "rows", "ranking", rows_of_a_group=15)
    with pytest.warns(UserWarning, match="row groups cut their queries; write larger row groups"):
        estimator("ranking", rows_per_fit=150, cost_weight=0.01).fit(**given)


@pytest.mark.parametrize("task", ["regression", "three classes", "ranking"])
def test_a_model_of_samples_knows_something(task, tmp_path):
    """An expert of three samples is better than one of them alone, and near to one of all rows."""
    table, y, queries = world(task, 3000)
    new, y_new, queries_new = world(task, 1000, seed=1)
    options = {"n_weak_learners": 40, "cost_weight": 0.0}
    score = {}
    for most in (None, 500):
        model = estimator(task, rows_per_fit=most, **options).fit(table, y, **queries)
        score[most] = model.score(new, y_new, **queries_new)
    some = np.arange(500)
    alone = estimator(task, **options).fit(table.take(some), y[some], **{k: v[some] for k, v in queries.items()})
    assert score[500] > alone.score(new, y_new, **queries_new) - 0.005
    assert score[500] > 0.9 * score[None]
    given = as_folder(tmp_path / "rows", task, 3000, rows_of_a_group=130)
    model = estimator(task, rows_per_fit=500, **options).fit(**given)
    assert model.score(new, y_new, **queries_new) > 0.9 * score[None]
    assert model.model_.training.rows == 500 or task == "ranking"
