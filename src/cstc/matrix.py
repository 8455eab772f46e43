"""Matrices of numbers, dense or sparse: the one place that knows the difference.

A dense matrix is a numpy array of float64 or float32, in whatever order its cells lie in memory.  A sparse one is a
matrix or an array of SciPy with its entries row by row (CSR); what it does not hold is zero, and a NaN that it holds
is a missing value.  Nobody makes all of it dense: rows are made dense some thousand at a time (`dense`, `blocks`), in
double precision, so that both kinds, and both precisions, predict the same to the last bit.

Only numpy is imported here: a loaded model needs nothing else, and who gives a sparse matrix brings SciPy along.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = [
    "any_infinite",
    "any_missing",
    "blocks",
    "cells_at",
    "column_at",
    "columns_at",
    "dense",
    "is_sparse",
    "missing_columns",
    "rows_at",
    "to_csr",
    "varying_columns",
]

MOST_ROWS = 4096  # of a block
MOST_CELLS = 1 << 21  # of a block: 16 MiB


def is_sparse(X: Any) -> bool:
    """Whether X is a sparse matrix or array of SciPy, in any format."""
    return hasattr(X, "tocsr")


def to_csr(X: Any) -> Any:
    """A sparse matrix of any format row by row, with each entry once; what the caller gave is left as it is."""
    if len(X.shape) != 2:
        raise ValueError(
            f"X is a sparse array with {len(X.shape)} dimension(s); give a matrix with a row for each input"
        )
    if X.dtype.kind not in "biuf":
        raise ValueError(f"X is a sparse matrix of {X.dtype}, which is not a number; give numbers")
    if getattr(X, "format", "") in ("csr", "csc", "bsr"):
        _check_entries(X)
    rows = X.tocsr()
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def _check_entries(X: Any) -> None:
    """Compiled code looks entries up without asking; SciPy does not look when a matrix is made of its three arrays."""
    entries, starts = X.indices, X.indptr
    height, width = X.shape if X.format != "bsr" else (X.shape[0] // X.blocksize[0], X.shape[1] // X.blocksize[1])
    outer, inner = (width, height) if X.format == "csc" else (height, width)
    right = len(starts) == outer + 1 and starts[0] == 0 and bool((starts[1:] >= starts[:-1]).all())
    right = right and starts[-1] <= min(len(entries), len(X.data))
    used = entries[: starts[-1]] if right else entries[:0]
    if not right or (len(used) and not 0 <= int(used.min()) <= int(used.max()) < inner):
        raise ValueError(f"X is a sparse matrix with entries outside of its {X.shape[0]} rows and {X.shape[1]} columns")


def rows_at(X: Any, at: np.ndarray) -> Any:
    """The rows of the given numbers, or where a mask holds."""
    if is_sparse(X) and at.dtype == bool:
        at = np.flatnonzero(at)
    return X[at]


def columns_at(X: Any, columns: np.ndarray) -> Any:
    """Some columns, in the given order; the matrix itself where they are all of its own."""
    n = X.shape[1]
    return X if len(columns) == n and np.array_equal(columns, np.arange(n)) else X[:, columns]


def cells_at(X: Any, at: np.ndarray, columns: np.ndarray) -> Any:
    """Some columns of some rows, by numbers or where a mask holds."""
    if is_sparse(X):
        return columns_at(rows_at(X, at), columns)
    return X[np.ix_(at, columns)]


def column_at(X: Any, column: int) -> np.ndarray:
    """One column, as an array."""
    return X[:, [column]].toarray().ravel() if is_sparse(X) else X[:, column]


def dense(X: Any, rows: slice = slice(None)) -> np.ndarray:
    """Some rows as an array in double precision, row by row; no copy where they are one already."""
    part = X[rows]
    return np.ascontiguousarray(part.toarray() if is_sparse(part) else part, dtype=np.float64)


def blocks(X: Any, most: int | None = None) -> Iterator[slice]:
    """The rows, at most so many at a time and few enough that a block is small when it is dense."""
    n, width = X.shape
    step = max(1, min(most or MOST_ROWS, MOST_CELLS // max(1, width)))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def any_infinite(X: Any) -> bool:
    """Whether a value is infinite."""
    if is_sparse(X):
        return bool(np.isinf(X.data).any())
    return any(bool(np.isinf(X[rows]).any()) for rows in blocks(X))


def any_missing(X: Any) -> bool:
    """Whether a value is missing: the least of several values is no number if one of them is none."""
    least = np.minimum.reduce(X.data if is_sparse(X) else X, axis=None, initial=0.0)
    return bool(least != least)


def missing_columns(X: Any) -> np.ndarray:
    """Bool (n_columns,): whether any value is missing."""
    if is_sparse(X):
        return _columns_where(np.isnan(X.data), X) > 0
    found = np.zeros(X.shape[1], dtype=bool)
    for rows in blocks(X):
        found |= np.isnan(X[rows]).any(axis=0)
    return found


def varying_columns(X: Any) -> np.ndarray:
    """Bool (n_columns,): whether the values of a column differ; missing ones differ from all others."""
    first = dense(X, slice(0, 1))[0]
    if is_sparse(X):
        n = X.shape[0]
        stored = _columns_where(slice(None), X)
        differs = (_columns_where(first[X.indices] != X.data, X) > 0) | ((stored < n) & (first != 0))
        return differs & (_columns_where(np.isnan(X.data), X) < n)
    differs, known = np.zeros(X.shape[1], dtype=bool), np.zeros(X.shape[1], dtype=bool)
    for rows in blocks(X):
        differs |= (X[rows] != first).any(axis=0)
        known |= ~np.isnan(X[rows]).all(axis=0)
    return differs & known


def _columns_where(chosen: Any, X: Any) -> np.ndarray:
    """How many of the chosen entries each column of a sparse matrix holds."""
    return np.bincount(X.indices[chosen], minlength=X.shape[1])
