"""Dense and sparse matrices: the same answers, and nothing of the caller's is changed."""

import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given

from builders import PROPERTY, seeds
from cstc import matrix
from cstc.rows import Rows
from cstc.tables import take_rows

FORMATS = {
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
    "coo": sparse.coo_array,
    "lil": sparse.lil_array,
    "dia": sparse.dia_array,
    "bsr": sparse.bsr_array,
    "csr matrix": sparse.csr_matrix,
    "csc matrix": sparse.csc_matrix,
}
each_format = pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS.keys())


def table(seed=0, n=40, width=7):
    """Zeros, missing values, and columns that are constant, empty or all missing."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, width)) < 0.6, 0.0, rng.normal(size=(n, width)))
    X[rng.random(X.shape) < 0.05] = np.nan
    for column in range(width):
        kind = rng.integers(6)
        if kind < 3:
            X[:, column] = [0.0, np.nan, 2.5][kind]
    return X


@each_format
def test_every_format_row_by_row(make):
    X = table()
    given = make(X)
    before = given.copy()
    np.testing.assert_array_equal(matrix.to_csr(given).toarray(), X)
    np.testing.assert_array_equal(given.toarray(), before.toarray())
    assert matrix.is_sparse(given)
    assert not any(map(matrix.is_sparse, (X, X.tolist(), None)))


def test_entries_that_come_twice_are_added_and_the_callers_matrix_is_left_alone():
    given = sparse.csr_array((np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 3))
    found = matrix.to_csr(given)
    np.testing.assert_array_equal(found.toarray(), [[0, 3, 0], [4, 0, 0]])
    assert (found.nnz, given.nnz) == (2, 3)
    own = sparse.csr_array(table())
    assert matrix.to_csr(own) is own


def test_truth_that_comes_twice_stays_true():
    given = sparse.csr_array((np.array([True, True]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    np.testing.assert_array_equal(matrix.to_csr(given).toarray(), [[False, True, False]])


@pytest.mark.parametrize(
    ("entries", "starts"),
    [([0, 3], [0, 1, 2]), ([0, -1], [0, 1, 2]), ([0, 1], [0, 2, 1]), ([0, 1], [0, 1, 9])],
    ids=["too far right", "too far left", "starts that go back", "starts beyond the end"],
)
@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csc_array])
def test_entries_outside_of_the_matrix_never_reach_compiled_code(make, entries, starts):
    broken = make((2, 3) if make is sparse.csr_array else (3, 2))
    broken.data, broken.indices, broken.indptr = np.ones(2), np.array(entries), np.array(starts)
    with pytest.raises(ValueError, match="entries outside of its"):
        matrix.to_csr(broken)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (sparse.coo_array(np.ones(3)), "1 dimension"),
        (sparse.csr_array(np.ones((2, 2), dtype=complex)), "complex128, which is not a number"),
    ],
)
def test_what_is_no_matrix_of_numbers(given, message):
    with pytest.raises(ValueError, match=message):
        matrix.to_csr(given)


def both(X, answer):
    """The same question to both kinds."""
    plain, other = answer(X), answer(sparse.csr_matrix(X))
    np.testing.assert_array_equal(other.toarray() if matrix.is_sparse(other) else other, plain)
    return plain


@PROPERTY
@given(seeds)
def test_both_kinds_say_the_same(seed):
    X = table(seed)
    rng = np.random.default_rng(seed)
    at, columns = rng.permutation(len(X))[:9], np.sort(rng.permutation(X.shape[1])[:3])
    mask = rng.random(len(X)) < 0.5
    for rows in (at, mask):
        both(X, lambda M, rows=rows: matrix.rows_at(M, rows))
        both(X, lambda M, rows=rows: matrix.cells_at(M, rows, columns))
        both(X, lambda M, rows=rows: take_rows(M, rows))
    both(X, lambda M: matrix.columns_at(M, columns))
    both(X, lambda M: Rows(M, np.zeros(len(X))).on(columns).X)
    both(X, lambda M: matrix.column_at(M, 2))
    both(X, lambda M: np.concatenate([matrix.dense(M, rows) for rows in matrix.blocks(M, 7)]))
    np.testing.assert_array_equal(both(X, matrix.missing_columns), np.isnan(X).any(axis=0))
    varies = (X[0] != X).any(axis=0) & ~np.isnan(X).all(axis=0)
    np.testing.assert_array_equal(both(X, matrix.varying_columns), varies)
    assert not both(X, matrix.any_infinite)
    X[3, 2] = -np.inf
    assert both(X, matrix.any_infinite)


def test_a_stored_zero_is_a_zero():
    X = sparse.csr_array((np.array([0.0, 1.0]), np.array([0, 1]), np.array([0, 2, 2])), shape=(2, 2))
    np.testing.assert_array_equal(matrix.varying_columns(X), [False, True])


def test_nothing_is_copied_that_is_right_already():
    X = table()
    assert np.shares_memory(matrix.dense(X), X)
    assert matrix.dense(X.astype(np.float32)).dtype == np.float64
    assert matrix.columns_at(X, np.arange(X.shape[1])) is X
    assert matrix.columns_at(X, np.arange(X.shape[1])[::-1]) is not X


def test_blocks_of_a_wide_matrix_are_small():
    X = sparse.csr_array((10_000, 1_000_000))
    sizes = [rows.stop - rows.start for rows in matrix.blocks(X)]
    assert sum(sizes) == 10_000
    assert max(sizes) * X.shape[1] <= matrix.MOST_CELLS
    assert [rows.stop - rows.start for rows in matrix.blocks(np.zeros((9000, 2)))] == [4096, 4096, 808]
    assert not list(matrix.blocks(np.zeros((0, 2))))
