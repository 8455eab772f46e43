"""Rows in files: read back as they were written, by parts, from scratch and from folders."""

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_matrix, issparse

from cluster.worlds import as_folder, world
from cstc.cluster import InFolder, InMemory, InScratch, Part, Reading
from cstc.cluster.in_folder import Piece
from cstc.folders import Folder
from cstc.model.schema import encode
from cstc.rows import Rows, Units

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 37))
ROWS = Rows(X, RNG.normal(size=50), RNG.random(50))


def plain(cells):
    return cells.toarray() if issparse(cells) else np.asarray(cells)


def matrices():
    holes = np.where(RNG.random(X.shape) < 0.7, 0.0, X)
    return {
        "by rows": X,
        "by columns": np.asfortranarray(X),
        "single": X.astype(np.float32),
        "sparse": csr_matrix(holes),
        "some rows": np.repeat(X, 2, axis=0)[::2],
    }


@pytest.mark.parametrize("kind", list(matrices()))
@pytest.mark.parametrize("where", ["scratch", "memory"])
def test_what_is_written_is_read(kind, where, tmp_path):
    rows = Rows(matrices()[kind], ROWS.y, ROWS.weights)
    stored = InMemory(rows) if where == "memory" else InScratch.write(rows, tmp_path)
    if where == "scratch":
        stored = pickle.loads(pickle.dumps(stored))
        assert len(pickle.dumps(stored)) < 1000  # tasks carry no rows
    assert (stored.n_rows, stored.n_columns) == (50, 37)
    for found, expected in zip(stored.targets(), (rows.y, rows.weights), strict=True):
        np.testing.assert_array_equal(found, expected)
    columns = np.array([36, 0, 17])
    for at in (None, np.array([3]), np.array([0, 7, 8, 49]), np.zeros(0, dtype=int)):
        found = stored.cells(columns, at)
        expected = plain(rows.X)[:, columns]
        np.testing.assert_array_equal(plain(found), expected if at is None else expected[at])
        assert found.dtype == rows.X.dtype
    steps = [np.arange(50)[step] for step in stored.steps(np.arange(50), 20)]
    np.testing.assert_array_equal(np.concatenate(steps), np.arange(50))
    assert max(map(len, steps)) <= 20


def test_a_file_that_ends_too_early_is_said(tmp_path):
    stored = InScratch.write(ROWS, tmp_path)
    whole = (tmp_path / "X.bin").read_bytes()
    (tmp_path / "X.bin").write_bytes(whole[:-8])
    stored.cells(np.array([0, 35]))
    with pytest.raises(OSError, match="ends too early"):
        stored.cells(np.array([36]))


def test_parts_of_parts(tmp_path):
    whole = Part(InScratch.write(ROWS, tmp_path))
    np.testing.assert_array_equal(whole.numbers(), np.arange(50))
    odd = whole.take(np.arange(1, 50, 2))
    some = pickle.loads(pickle.dumps(odd.take(np.array([0, 2, 24]))))
    np.testing.assert_array_equal(some.numbers(), [1, 5, 49])
    assert [len(whole), len(odd), len(some)] == [50, 25, 3]
    np.testing.assert_array_equal(some.targets()[0], ROWS.y[[1, 5, 49]])
    np.testing.assert_array_equal(some.cells(np.array([2]), np.array([1, 2])), X[[5, 49]][:, [2]])
    np.testing.assert_array_equal(odd.take(np.arange(25) < 2).numbers(), [1, 3])  # a mask
    assert len({whole.key, odd.key, some.key}) == 3
    with pytest.raises(ValueError, match="must stay in their order"):
        whole.take(np.array([3, 1]))


def test_rows_know_where_their_parts_lie(tmp_path):
    rows = Rows(X, ROWS.y, ROWS.weights, None, Part(InScratch.write(ROWS, tmp_path)))
    some = rows.take(np.array([4, 9])).take(np.array([1]))
    np.testing.assert_array_equal(some.part.numbers(), [9])
    np.testing.assert_array_equal(some.part.cells(np.arange(37)), some.X)


# -- folders -------------------------------------------------------------------------------------------------------


def in_folder(tmp_path, task="two classes", pieces=None, **reading):
    table, y, _ = world(task)
    given = as_folder(tmp_path / "rows", task)
    names = tuple(table.column_names)
    categories = {"kind": ["blue", "green", "red"]}
    stored = InFolder(Folder.open(given["X"]), "target", pieces=pieces)
    return stored.read_as(Reading(names, categories, "<f8", **reading)), encode(table, categories, names), y


def test_a_folder_is_read_as_its_table_is(tmp_path):
    classes = np.array(["no", "yes"], dtype=object)
    stored, cells, y = in_folder(tmp_path, classes=classes, class_weights=np.array([1.0, 3.0]))
    stored = pickle.loads(pickle.dumps(stored))
    found, weights = stored.targets()
    np.testing.assert_array_equal(classes[found], y)
    np.testing.assert_array_equal(weights, np.where(y == "yes", 3.0, 1.0))
    columns = np.array([4, 1])
    for at in (None, np.array([0, 69, 70, 71, 399]), np.zeros(0, dtype=int)):
        expected = cells[:, columns]
        np.testing.assert_array_equal(stored.cells(columns, at), expected if at is None else expected[at])
    at = np.arange(3, 400, 5)
    np.testing.assert_array_equal(np.concatenate([at[step] for step in stored.steps(at, 10)]), at)


def test_pieces_of_a_folder(tmp_path):
    pieces = (Piece(0, 5, 9), Piece(3, 0, 2))  # files of 200 rows, row groups of 70
    stored, cells, y = in_folder(tmp_path, "regression", pieces, units=Units(1.5, 2.0))
    numbers = np.array([5, 6, 7, 8, 200, 201])
    np.testing.assert_array_equal(stored.targets()[0], (y[numbers] - 1.5) / 2.0)
    np.testing.assert_array_equal(stored.cells(np.arange(5)), cells[numbers])
    np.testing.assert_array_equal(stored.cells(np.array([1]), np.array([1, 4])), cells[[6, 200]][:, [1]])
    assert stored.table(["a"]).num_rows == 6


def test_rows_that_cannot_be_read_are_said(tmp_path):
    stored, *_ = in_folder(tmp_path, classes=np.array(["maybe", "no"], dtype=object))
    with pytest.raises(ValueError, match=r"has classes that none of the rows which judge has.*leave such rows out"):
        stored.targets()
