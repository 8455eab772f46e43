"""What workers do: grow an ensemble, or say what it predicts for some rows.

Each task is a small object that is called on the worker.  A worker keeps what it has read and binned for the next
tasks, within a limit, and has one thread for each task: the trees are the same wherever they grow.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..binning import ColumnBlocks
from ..boosting import Boosting, rounds_of
from ..engines import grow
from ..lightgbm_engine import SHARED_BINS, Binned, go_on
from ..lightgbm_trees import flatten_booster
from ..matrix import is_sparse
from ..model import TreePool
from ..progress import QUIET
from ..rows import Rows
from .stored import Part

__all__ = ["Bins", "Grow", "GrowOn", "Grown", "Hear", "Heard", "Kept", "bare", "hear"]

MOST_KEPT = 1 << 30  # bytes that a worker keeps, where nobody says how much memory it has
MOST_CELLS = 1 << 24  # that are read at once to be predicted for


def bare(boosting: Boosting) -> Boosting:
    """As it travels: what belongs to the process that asks stays there."""
    return replace(boosting, progress=QUIET, workers=None, n_jobs=1)


@dataclass(frozen=True, eq=False)
class Bins:
    """Rows, and the columns of them that are binned once for many ensembles.

    Attributes
    ----------
    part : Part
    boosting : Boosting
        How they are binned; bare.
    sets : sequence of int ndarray or None
        The sets of columns that are asked for, or most of them; None where rows are few, and are binned for each
        ensemble.
    """

    part: Part
    boosting: Boosting
    sets: Sequence[np.ndarray] | None

    def binned(self, boosting: Boosting, columns: np.ndarray) -> Binned:
        """Some columns, ready to grow ensembles on."""
        y, weights = KEPT(("targets", *self.part.key), self.part.targets, lambda found: 2 * found[0].nbytes)
        if self.sets is None:
            everything = np.arange(self.part.stored.n_columns)
            X = KEPT(("cells", *self.part.key), lambda: self.part.cells(everything), _size)
            return Binned(boosting, Rows(X, y, weights), columns, None)
        sets = b"|".join(each.tobytes() for each in self.sets)
        key = ("bins", *self.part.key, sets, self.boosting.constant.tobytes())
        n_columns = len(np.unique(np.concatenate(self.sets)))
        # a byte for each cell, and for those of stages that come later again; each block has targets, weights and
        # starting scores, too
        per_row = 2 * n_columns + len(self.sets) * (8 + 8 * len(self.boosting.constant))
        blocks = KEPT(key, lambda: self._blocks(y, weights), lambda _: len(y) * per_row)
        return Binned(boosting, Rows(None, y, weights), columns, blocks)

    def _blocks(self, y: np.ndarray, weights: np.ndarray) -> ColumnBlocks:
        """Each block is read and binned when it is first asked for."""
        part, boosting = self.part, self.boosting

        def make(columns: np.ndarray) -> Any:
            rows = Rows(part.cells(columns), y, weights)
            return boosting.on(columns).dataset(rows, parameters=SHARED_BINS)

        return ColumnBlocks(make, self.sets or [], len(y), 1, ahead=False)


class Grown(NamedTuple):
    """All trees of an ensemble, and after how many rounds it was best."""

    pool: TreePool
    columns: np.ndarray  # in the order in which trees number them
    best: int
    n_rounds: int


@dataclass(frozen=True, eq=False)
class Grow:
    """Grow an ensemble.

    Attributes
    ----------
    bins : Bins
    boosting : Boosting
        Bare.
    columns : int ndarray
    what : str
        For those who read of a failure.
    out : bytes or None
        Bits: the rows that are left out; boosting stops early on them.
    cost_weight : float
    n_rounds : int or None
        Of an ensemble on all rows; of one that leaves rows out, so many at least.
    """

    bins: Bins
    boosting: Boosting
    columns: np.ndarray
    what: str
    out: bytes | None = None
    cost_weight: float = 0.0
    n_rounds: int | None = None

    @property
    def size(self) -> int:
        return len(self.columns)

    def __call__(self) -> Grown:
        binned = self.bins.binned(self.boosting, self.columns)
        if self.out is None:
            assert self.n_rounds is not None
            booster = binned.boost_all(self.n_rounds, self.cost_weight)
        else:
            out = np.unpackbits(np.frombuffer(self.out, np.uint8), count=len(binned.rows)).astype(bool)
            booster = binned.boost_without(out, self.cost_weight)
            go_on(booster, self.n_rounds or 0)
        n_rounds = booster.current_iteration()
        return Grown(flatten_booster(booster, n_rounds), binned.columns, rounds_of(booster), n_rounds)


@dataclass(frozen=True, eq=False)
class GrowOn:
    """Grow an ensemble on a sample of rows, stopped early on others.

    Attributes
    ----------
    learn, judges : Part
    boosting : Boosting
        Bare.
    columns : int ndarray
    what : str
    """

    learn: Part
    judges: Part
    boosting: Boosting
    columns: np.ndarray
    what: str

    @property
    def size(self) -> int:
        return len(self.columns)

    def __call__(self) -> Grown:
        boosting = self.boosting.on(self.columns)
        booster = grow(boosting, _rows(self.learn, self.columns), _rows(self.judges, self.columns))
        best = rounds_of(booster)
        return Grown(flatten_booster(booster, best), self.columns, best, best)


def _rows(part: Part, columns: np.ndarray) -> Rows:
    """Some columns of the rows that count."""
    y, weights = part.targets()
    counts = None if weights.all() else np.flatnonzero(weights)
    if counts is not None and not len(counts):
        raise ValueError("all rows that this fit reads have weight 0; leave such rows out")
    cells = part.cells(columns, counts)
    return Rows(cells, y, weights) if counts is None else Rows(cells, y[counts], weights[counts])


class Heard(NamedTuple):
    """What an ensemble says of some rows, and what its branches buy there."""

    scores: np.ndarray
    items: np.ndarray | None


@dataclass(frozen=True, eq=False)
class Hear:
    """Say what an ensemble predicts for some rows.

    Attributes
    ----------
    part : Part
    at : bytes
        Bits: the rows of it that are asked for.
    pool, weights : TreePool, ndarray
        On their own columns.
    columns : int ndarray
        Those.
    what : str
    feature_items : bool ndarray or None
        Where it is asked what is bought: the items that columns of the whole matrix require.
    """

    part: Part
    at: bytes
    pool: TreePool
    weights: np.ndarray
    columns: np.ndarray
    what: str
    feature_items: np.ndarray | None = None

    @property
    def size(self) -> int:
        return len(self.columns)

    def __call__(self) -> Heard:
        mask = np.unpackbits(np.frombuffer(self.at, np.uint8), count=len(self.part))
        at = np.flatnonzero(mask)
        step = max(1, MOST_CELLS // max(1, len(self.columns)))
        pieces = (self.part.cells(self.columns, at[some]) for some in self.part.steps(at, step))
        return hear(self.pool, self.weights, pieces, self.columns, self.feature_items)


def hear(
    pool: TreePool, weights: np.ndarray, pieces: Iterable[Any], columns: np.ndarray, feature_items: np.ndarray | None
) -> Heard:
    """What an ensemble says of rows that come in pieces, and what it buys there, if `feature_items` are given."""
    scores, items = [np.zeros((0, weights.shape[1]))], []
    for cells in pieces:
        if feature_items is None:
            scores.append(pool.scores(cells, weights))
        else:
            said, bought = pool.scores_and_items(cells, weights, feature_items[columns])
            scores.append(said)
            items.append(bought)
    return Heard(np.concatenate(scores), np.concatenate(items) if items else None)


class Kept:
    """What a worker has read and may need again; what was not asked for longest goes first."""

    def __init__(self, most: int = MOST_KEPT):
        self.most = most
        self._values: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._lock = threading.RLock()

    def __call__(self, key: Any, make: Callable[[], Any], size: Callable[[Any], int]) -> Any:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]
            value = make()
            self._values[key] = value, size(value)
            while len(self._values) > 1 and sum(each for _, each in self._values.values()) > self.most:
                self._values.popitem(last=False)
            return value

    def forget(self) -> None:
        with self._lock:
            self._values.clear()


#: Of this process.
KEPT = Kept()


def _size(X: Any) -> int:
    return X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if is_sparse(X) else X.nbytes
