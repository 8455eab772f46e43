"""Columns of many rows, binned once for all sets of them.

Stages are nested sets of columns, and folds are parts of the rows.  Binning every stage, and every fold of it, anew
takes as long as growing small trees on it.  So columns that always come together are binned as one block; the blocks of
a stage are put side by side, and a fold is cut out of them, without looking at a value again.
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


class ColumnBlocks:
    """Blocks of columns as LightGBM bins them.

    Parameters
    ----------
    make : callable
        The data set of some columns, not yet binned, with targets, weights and starting scores.
    sets : sequence of int ndarray
        The sets of columns that will be asked for.
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
        self._columns = [columns[block == number] for number in range(block.max(initial=-1) + 1)]
        self._binned: dict[int, lightgbm.Dataset] = {}
        if ahead:
            binned = side_by_side([partial(_bin, make, each) for each in self._columns], n_jobs)
            self._binned = dict(enumerate(binned))
        self._together: dict[bytes, tuple[lightgbm.Dataset, np.ndarray]] = {}
        self._lock = threading.Lock()

    def together(self, columns: np.ndarray) -> tuple[lightgbm.Dataset, np.ndarray]:
        """The data set of some columns, and these in the order in which they stand there.

        Columns of a set that was not expected, and that cuts a block, are binned for it alone.
        """
        key = columns.tobytes()
        with self._lock:
            if key not in self._together:
                at = [number for number, own in enumerate(self._columns) if np.isin(own, columns).all()]
                blocks, order = [self._block(number) for number in at], [self._columns[number] for number in at]
                rest = np.setdiff1d(columns, np.concatenate([*order, np.zeros(0, dtype=int)]))
                if len(rest):
                    blocks, order = [*blocks, _bin(self._make, rest)], [*order, rest]
                self._together[key] = _side_by_side(blocks), np.concatenate(order)
            return self._together[key]

    def _block(self, number: int) -> lightgbm.Dataset:
        if number not in self._binned:
            self._binned[number] = _bin(self._make, self._columns[number])
        return self._binned[number]


def _bin(make: Callable[[np.ndarray], lightgbm.Dataset], columns: np.ndarray) -> lightgbm.Dataset:
    return make(columns).construct()


def _side_by_side(blocks: Sequence[lightgbm.Dataset]) -> lightgbm.Dataset:
    """Blocks as one data set; one block alone is taken as it is."""
    if len(blocks) == 1:
        return blocks[0]
    found = blocks[0].subset(list(range(blocks[0].num_data()))).construct()  # a copy, since it is what grows
    with warnings.catch_warnings():
        # that it keeps no values, and that it forgets what it was told of categories, which the bins remember
        warnings.filterwarnings("ignore", "Cannot add features from|Resetting categorical features")
        for block in blocks[1:]:
            found.add_features_from(block)
    return found
