"""``Phi`` as codes of leaves: a boosted tree has few outputs, so which of them a row gets is all there is to keep.

With ``code[i, t]`` the leaf that row i reaches in weak learner t, and ``value[t, l]`` what its leaves give,

    Phi[i, t] = value[t, code[i, t]]

A code takes a byte where learners have at most 256 leaves, a cell of a dense matrix eight.  Centring and scaling a
column changes its values alone.  Both products that training needs read the codes as they are:

    (Phi @ B)[i]   = sum_t value[t, code[i, t]] * B[t]
    (Phi.T @ M)[t] = sum_i value[t, code[i, t]] * M[i]

Plain inputs have as many outputs as rows, and stay a dense matrix.  Whoever works with ``Phi`` does it in ways that
hold for both: ``phi @ B``, ``phi.T @ M``, ``phi[rows]``, ``phi[np.ix_(rows, columns)]``, ``phi.astype``, its shape
and its length; and `means`, `mean_squares`, `standardised` and `as_array` below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..matrix import blocks, dense
from ..model import TreePool, native

__all__ = ["LeafCodes", "Phi", "as_array", "leaf_table", "mean_squares", "means", "phi_and_codes", "standardised"]

CELLS = 1 << 17  # that are looked up at a time: a MiB of numbers


@dataclass(frozen=True, eq=False)
class LeafCodes:
    """``Phi`` of weak learners whose leaves are constants.

    Attributes
    ----------
    codes : unsigned ndarray of shape (n, n_learners)
        The leaf that each row reaches in each learner.
    values : ndarray of shape (n_learners, n_leaves)
        What each leaf gives; learners with fewer leaves than others have values at the end that no code names.
    """

    codes: np.ndarray
    values: np.ndarray

    __array_ufunc__ = None  # an array on the left of @ is an error instead of a matrix of objects

    def __post_init__(self) -> None:
        if self.codes.ndim != 2 or self.values.shape[:1] != self.codes.shape[1:]:
            raise ValueError(f"codes of shape {self.codes.shape} do not fit values of shape {self.values.shape}")
        # compiled code looks values up without asking
        if self.codes.dtype.kind != "u" or (self.codes.size and int(self.codes.max()) >= self.values.shape[1]):
            raise ValueError(f"codes must be unsigned numbers below {self.values.shape[1]}, the number of leaves")

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.shape

    @property
    def dtype(self) -> np.dtype:
        """Precision of the values; products are in double precision."""
        return self.values.dtype

    def __len__(self) -> int:
        return len(self.codes)

    def astype(self, dtype: type, copy: bool = True) -> LeafCodes:
        """Values of another precision."""
        return LeafCodes(self.codes, self.values.astype(dtype, copy=copy))

    def __getitem__(self, at: Any) -> LeafCodes:
        """Some rows, by numbers or where a mask holds; or some columns of some rows, by `np.ix_`."""
        values = self.values[at[1].ravel()] if isinstance(at, tuple) else self.values
        return LeafCodes(np.ascontiguousarray(self.codes[at]), values)

    def __matmul__(self, weights: np.ndarray) -> np.ndarray:
        """``Phi @ weights``, for a vector or a matrix."""
        _check_length(weights, self.shape[1], "weights", "columns")
        matrix = weights if weights.ndim == 2 else weights[:, None]
        if native.available():
            found = native.times_codes(self.codes, self.values, matrix)
        else:
            found = np.zeros((len(self), matrix.shape[1]))
            for rows, cells in self._in_blocks():
                found[rows] = cells @ matrix
        return found.reshape(len(self), *weights.shape[1:])

    @property
    def T(self) -> _Transposed:
        return _Transposed(self)

    def _transposed_times(self, margins: np.ndarray) -> np.ndarray:
        _check_length(margins, len(self), "margins", "rows")
        matrix = margins if margins.ndim == 2 else margins[:, None]
        if native.available():
            found = native.transposed_codes_times(self.codes, self.values, matrix)
        else:
            found = np.zeros((self.shape[1], matrix.shape[1]))
            for rows, cells in self._in_blocks():
                found += cells.T @ matrix[rows]
        return found.reshape(self.shape[1], *margins.shape[1:])

    def toarray(self) -> np.ndarray:
        """The dense matrix, eight times as large or more."""
        found = np.empty(self.shape, dtype=self.dtype)
        for rows, cells in self._in_blocks():
            found[rows] = cells
        return found

    def _in_blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Some rows after the other, dense."""
        learners = np.arange(self.shape[1])
        for rows in blocks(self.codes, max(1, CELLS // max(1, len(learners)))):
            yield rows, self.values[learners, self.codes[rows]]


@dataclass(frozen=True, eq=False)
class _Transposed:
    """``Phi.T``, which knows how to be multiplied."""

    phi: LeafCodes

    __array_ufunc__ = None

    def __matmul__(self, margins: np.ndarray) -> np.ndarray:
        return self.phi._transposed_times(margins)


Phi = np.ndarray | LeafCodes


def _check_length(other: np.ndarray, n: int, name: str, of: str) -> None:
    if len(other) != n:
        raise ValueError(f"{name} has {len(other)} rows, and Phi has {n} {of}")


def phi_and_codes(pool: TreePool, X: Any) -> tuple[Phi, np.ndarray]:
    """``Phi`` at some rows, and the codes of the leaves that they reach.

    The codes are those of `leaf_table`.  ``Phi`` is dense where a leaf passes on a column.
    """
    table = leaf_table(pool)
    code_of = np.zeros(pool.n_positions, dtype=np.min_scalar_type(max(0, table.shape[1] - 1)))
    known = table >= 0
    code_of[table[known]] = np.nonzero(known)[1]
    codes = np.empty((X.shape[0], pool.n_learners), dtype=code_of.dtype)
    passes_on = bool((pool.linear_feature >= 0).any())
    values = np.empty((X.shape[0], pool.n_learners)) if passes_on else np.where(known, pool.value[table], 0.0)
    for rows in blocks(X):
        block = dense(X, rows)
        leaves = pool.leaves(block)
        codes[rows] = code_of[leaves]
        if passes_on:
            values[rows] = pool.outputs(block, leaves)
    return values if passes_on else LeafCodes(codes, values), codes


def leaf_table(pool: TreePool) -> np.ndarray:
    """Int (n_learners, n_leaves): the position of each leaf of a learner, -1 behind the last of them."""
    leaves = np.flatnonzero((pool.feature < 0) & (pool.owners >= 0))
    leaves = leaves[np.argsort(pool.owners[leaves], kind="stable")]
    owner = pool.owners[leaves]
    first = np.searchsorted(owner, np.arange(pool.n_learners))
    code = np.arange(len(leaves)) - first[owner]
    table = np.full((pool.n_learners, int(code.max(initial=-1)) + 1), -1)
    table[owner, code] = leaves
    return table


def standardised(phi: Phi, offset: np.ndarray, scale: float) -> Phi:
    """``(Phi - offset) / scale``, with an offset for each column."""
    if isinstance(phi, LeafCodes):
        return LeafCodes(phi.codes, (phi.values - offset[:, None]) / scale)
    return (phi - offset) / scale


def means(phi: Phi, row_weights: np.ndarray) -> np.ndarray:
    """The weighted mean of each column."""
    return phi.T @ row_weights / row_weights.sum()


def mean_squares(phi: Phi, row_weights: np.ndarray) -> np.ndarray:
    """The weighted mean of the squares of each column."""
    return means(LeafCodes(phi.codes, phi.values**2) if isinstance(phi, LeafCodes) else phi**2, row_weights)


def as_array(phi: Phi) -> np.ndarray:
    """The dense matrix, for solvers of others that take nothing else."""
    return phi.toarray() if isinstance(phi, LeafCodes) else phi
