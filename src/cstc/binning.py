"""Columns of many rows, binned once for all sets of them.

Stages are nested sets of columns, and folds are parts of the rows.  Binning every stage, and every fold of it, anew
takes as long as growing small trees on it.  So columns that always come together are binned as one block; the rows of
a fold are cut out of the blocks of a stage, which are then put side by side, without looking at a value again.  Only
what a stage that comes later has of a block, and no more of it, is binned once more, for that stage.

What is put together is a copy, and there are dozens of stages: nobody keeps it here, so that of many rows only the
stages that are being learned from lie in memory, beside the blocks.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import lightgbm
import numpy as np

from .parallel import side_by_side

__all__ = ["ColumnBlocks"]

BLOCK_CELLS = 1 << 25  # of a block: its columns are copied, and LightGBM keeps a sample of them until they are binned

#: What is heard of warnings is the same for all threads.
_QUIETLY = threading.Lock()


class ColumnBlocks:
    """Blocks of columns as LightGBM bins them.

    Parameters
    ----------
    make : callable
        The data set of some columns, not yet binned, with targets, weights and starting scores.
    sets : sequence of int ndarray
        The sets of columns that will be asked for, or most of them.
    n_rows : int
    n_jobs : int or None
    ahead : bool
        Whether all blocks are binned at once, or each when it is first asked for.

    Attributes
    ----------
    sets : sequence of int ndarray
    """

    def __init__(
        self,
        make: Callable[[np.ndarray], lightgbm.Dataset],
        sets: Sequence[np.ndarray],
        n_rows: int,
        n_jobs: int | None,
        *,
        ahead: bool = True,
    ):
        self._make = make
        self.sets = sets
        columns = np.unique(np.concatenate([*sets, np.zeros(0, dtype=int)]))
        belongs = np.array([np.isin(columns, each) for each in sets]).reshape(len(sets), len(columns))
        _, block = np.unique(belongs, axis=1, return_inverse=True)
        block = np.ravel(block)
        parts = [columns[block == number] for number in range(block.max(initial=-1) + 1)]
        self._most = max(1, BLOCK_CELLS // max(1, n_rows))
        self._columns = [piece for own in parts for piece in self._pieces(own)]
        self._binned: dict[int, lightgbm.Dataset] = {}
        if ahead:
            binned = side_by_side([partial(_bin, make, each) for each in self._columns], n_jobs)
            self._binned = dict(enumerate(binned))
        self._rests: dict[bytes, lightgbm.Dataset] = {}
        self._lock = threading.Lock()

    def order(self, columns: np.ndarray) -> np.ndarray:
        """Some columns in the order in which they stand when they are put together."""
        at, rest = self._places(columns)
        return np.concatenate([*(self._columns[number] for number in at), rest])

    def together(self, columns: np.ndarray, rows: np.ndarray | None = None) -> lightgbm.Dataset:
        """The data set of some columns, at the rows of the given numbers, in rising order, or at all of them.

        Columns of a set that was not expected, and that cuts a block, are binned for it alone.
        """
        at, rest = self._places(columns)
        blocks = [*map(self._block, at), *map(self._rest, self._pieces(rest) if len(rest) else [])]
        return _side_by_side(blocks, rows)

    def _pieces(self, columns: np.ndarray) -> list[np.ndarray]:
        """As many of them at a time as may be binned together."""
        return np.split(columns, range(self._most, len(columns), self._most))

    def _rest(self, columns: np.ndarray) -> lightgbm.Dataset:
        with self._lock:
            if columns.tobytes() not in self._rests:
                self._rests[columns.tobytes()] = _bin(self._make, columns)
            return self._rests[columns.tobytes()]

    def _places(self, columns: np.ndarray) -> tuple[list[int], np.ndarray]:
        """The numbers of the blocks that lie in a set of columns, and what of it lies in none of them."""
        at = [number for number, own in enumerate(self._columns) if np.isin(own, columns).all()]
        known = np.concatenate([*(self._columns[number] for number in at), np.zeros(0, dtype=int)])
        return at, np.setdiff1d(columns, known)

    def _block(self, number: int) -> lightgbm.Dataset:
        with self._lock:
            if number not in self._binned:
                self._binned[number] = _bin(self._make, self._columns[number])
            return self._binned[number]


def _bin(make: Callable[[np.ndarray], lightgbm.Dataset], columns: np.ndarray) -> lightgbm.Dataset:
    return make(columns).construct()


def _side_by_side(blocks: Sequence[lightgbm.Dataset], rows: np.ndarray | None) -> lightgbm.Dataset:
    """Some rows of blocks as one data set; one block alone, with all its rows, is taken as it is."""
    if rows is None and len(blocks) == 1:
        return blocks[0]
    # the first one is a copy in any case, since it is what grows
    found = _cut(blocks[0], np.arange(blocks[0].num_data()) if rows is None else rows)
    for block in blocks[1:]:
        part = block if rows is None else _cut(block, rows)
        with _QUIETLY, warnings.catch_warnings():
            # that it keeps no values, and that it forgets what it was told of categories, which the bins remember
            warnings.filterwarnings("ignore", "Cannot add features from|Resetting categorical features")
            found.add_features_from(part)
    return found


def _cut(block: lightgbm.Dataset, rows: np.ndarray) -> lightgbm.Dataset:
    """Some rows of a block.  LightGBM asks for a list, and makes an array of it: of many rows, that takes longer."""
    part = block.subset([])
    part.used_indices = np.ascontiguousarray(rows, dtype=np.int32)  # type: ignore[assignment]
    return part.construct()
