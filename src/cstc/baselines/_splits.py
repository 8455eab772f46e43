"""Splits by histograms: columns that are binned once, and the best split of every column at some rows.

LightGBM takes the split that gains most and says nothing of the others.  Systems whose splits must gain much for their
price (`speedboost`, `cost_tree`) need the gain of every column, and find it here as LightGBM does: sums of statistics
for each bin, and the best cut between bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..matrix import columns_at, dense
from ..model import TreePool
from ..model.pool import in_steps

__all__ = ["Bins", "Entropy", "Grown", "Split", "Splits", "Squares", "best_splits", "grow", "least_rows", "pool_of"]

MISSING = 255  # the bin of missing values
LUMP = 254  # the last bin: of categories, all that have no bin of their own
MOST_CELLS = 1 << 22  # that are made dense at a time
MIN_ROWS = 20  # in a leaf, as for LightGBM
TINY = 1e-10  # of the risk at a node: a smaller gain is rounding


class Squares:
    """Squared risk: a row has the statistics (1, w, w * target)."""

    def statistics(self, target: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.array([np.ones(len(target)), weights, weights * target])

    def risk(self, sums: np.ndarray) -> np.ndarray:
        """Summed risk of the best constant, up to the sum of the squared targets: ``-(sum w t)^2 / sum w``."""
        return -(sums[..., 2] ** 2) / np.maximum(sums[..., 1], 1e-300)

    def order(self, sums: np.ndarray) -> np.ndarray:
        """What categories are sorted by: the mean target."""
        return sums[..., 2] / np.maximum(sums[..., 1], 1e-300)


class Entropy:
    """Entropy in bits: a row has the statistics (1, w if it is of class 0, w if it is of class 1, ..)."""

    def __init__(self, n_classes: int):
        self.n_classes = n_classes

    def statistics(self, target: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.vstack([np.ones(len(target)), *(weights * (target == k) for k in range(self.n_classes))])

    def risk(self, sums: np.ndarray) -> np.ndarray:
        """Summed entropy: ``- sum_k n_k log2(n_k / n)``."""
        counts = np.maximum(sums[..., 1:], 0.0)  # differences of sums may be a hair below zero
        total = counts.sum(axis=-1, keepdims=True)
        shares = counts / np.maximum(total, 1e-300)
        return -(counts * np.log2(np.where(shares > 0, shares, 1.0))).sum(axis=-1)

    def order(self, sums: np.ndarray) -> np.ndarray:
        """What categories are sorted by: the share of the class that is most common at the node.

        For two classes the best set of categories is a piece of this order; for more it is one that is found quickly.
        """
        most = int(np.argmax(sums[:, 1:].sum(axis=0)))
        return sums[:, 1 + most] / np.maximum(sums[:, 1:].sum(axis=1), 1e-300)


@dataclass(frozen=True, eq=False)
class Bins:
    """Columns of some rows as numbers of bins.

    Attributes
    ----------
    codes : uint8 ndarray of shape (n_columns, n)
    edges : list of ndarray
        For each column of numbers, the thresholds between its bins: a value up to ``edges[b]`` is in bin b or below.
    is_category : bool ndarray of shape (n_columns,)
    """

    codes: np.ndarray
    edges: list[np.ndarray]
    is_category: np.ndarray

    @classmethod
    def of(cls, X, categorical: Sequence[int] = (), like: Bins | None = None) -> Bins:
        """The columns of a matrix, in bins of their own or in those of other rows."""
        n, n_columns = X.shape
        is_category = np.isin(np.arange(n_columns), list(categorical)) if like is None else like.is_category
        codes = np.empty((n_columns, n), dtype=np.uint8)
        edges: list[np.ndarray] = [] if like is None else like.edges
        step = max(1, MOST_CELLS // max(1, n))
        for start in range(0, n_columns, step):
            for number, column in enumerate(dense(columns_at(X, np.arange(start, min(start + step, n_columns)))).T):
                at = start + number
                if like is None:
                    edges.append(np.zeros(0) if is_category[at] else _edges(column))
                missing = np.isnan(column)
                if is_category[at]:
                    known = np.where(missing | (column < 0) | (column > LUMP), LUMP, column).astype(np.uint8)
                else:
                    known = np.searchsorted(edges[at], column).astype(np.uint8)
                codes[at] = np.where(missing, MISSING, known)
        return cls(codes, edges, is_category)

    @property
    def n_rows(self) -> int:
        return self.codes.shape[1]

    def sums(self, at: np.ndarray, columns: np.ndarray, statistics: np.ndarray) -> np.ndarray:
        """Shape (n_columns, 256, n_statistics): the sums over some rows in every bin."""
        found = np.empty((len(columns), 256, len(statistics)))
        values = statistics[:, at]
        for place, column in enumerate(columns):
            codes = self.codes[column, at]
            found[place, :, 0] = np.bincount(codes, minlength=256)
            for k in range(1, len(values)):
                found[place, :, k] = np.bincount(codes, values[k], minlength=256)
        return found


def _edges(column: np.ndarray) -> np.ndarray:
    """Thresholds in the middle of neighbouring values, or of neighbouring quantiles where values are many."""
    values = np.unique(column[~np.isnan(column)])
    if len(values) > LUMP:
        known = column[~np.isnan(column)]
        values = np.unique(np.quantile(known, np.linspace(0, 1, LUMP + 1), method="inverted_cdf"))
    low, high = values[:-1], values[1:]
    middle = low + (high - low) / 2
    return np.where(middle < high, middle, low)  # between neighbouring numbers there is none


@dataclass(frozen=True, eq=False)
class Split:
    """One split.

    Attributes
    ----------
    column : int
    threshold : float
        Values up to it go left; 0 at a split on categories.
    categories : bool ndarray or None
        Which categories go left; None at a split on numbers.
    missing_left : bool
    left_bins : bool ndarray of shape (256,)
        The same by bins.
    gain : float
        By how much the summed risk falls.
    """

    column: int
    threshold: float
    categories: np.ndarray | None
    missing_left: bool
    left_bins: np.ndarray
    gain: float

    def goes_left(self, bins: Bins, at: np.ndarray) -> np.ndarray:
        return self.left_bins[bins.codes[self.column, at]]


@dataclass(frozen=True, eq=False)
class Splits:
    """The best split of each of some columns; its gain is 0 where there is none."""

    columns: np.ndarray
    gains: np.ndarray
    _bins: Bins
    _sums: np.ndarray
    _cuts: np.ndarray
    _orders: np.ndarray
    _missing_left: np.ndarray

    @property
    def left_bins(self) -> np.ndarray:
        """Bool (n_columns, 256): the bins that go left at each split."""
        left = np.zeros((len(self.columns), 256), dtype=bool)
        np.put_along_axis(left, self._orders, np.arange(self._orders.shape[1]) <= self._cuts[:, None], axis=1)
        left[:, MISSING] = self._missing_left
        return left

    def gains_elsewhere(self, bins: Bins, statistics: np.ndarray) -> np.ndarray:
        """By how much the splits lower the squared risk of other rows, in the same bins.

        With the mean v of the rows that were split, on either side: ``2 v * sum w t - v^2 * sum w``.
        """
        sums = bins.sums(np.arange(bins.n_rows), self.columns, statistics)
        left, found = self.left_bins, np.zeros(len(self.columns))
        for side in (left, ~left):
            taught, judged = (np.einsum("cb,cbs->cs", side, each) for each in (self._sums, sums))
            value = taught[:, 2] / np.maximum(taught[:, 1], 1e-300)
            found += 2.0 * value * judged[:, 2] - value**2 * judged[:, 1]
        return np.where(self.gains > 0, found, 0.0)

    def split(self, place: int) -> Split:
        """That of the column at this place."""
        column, left = int(self.columns[place]), self.left_bins[place]
        missing_left, gain = bool(left[MISSING]), float(self.gains[place])
        if not self._bins.is_category[column]:
            threshold = float(self._bins.edges[column][self._cuts[place]])
            return Split(column, threshold, None, missing_left, left, gain)
        categories = left[: int(np.flatnonzero(left).max(initial=0)) + 1]
        return Split(column, 0.0, categories, False, left, gain)


def best_splits(
    bins: Bins, at: np.ndarray, columns: np.ndarray, statistics: np.ndarray, criterion: Squares | Entropy, least: int
) -> Splits:
    """For each column the split of some rows that lowers the summed risk most, with `least` rows on either side."""
    sums = bins.sums(at, columns, statistics)
    total, missing = sums.sum(axis=1), sums[:, MISSING]
    orders = np.tile(np.arange(LUMP + 1), (len(columns), 1))
    n_cuts = np.array([len(bins.edges[column]) for column in columns], dtype=int)
    for place in np.flatnonzero(bins.is_category[columns]):
        present = np.flatnonzero(sums[place, :LUMP, 0] > 0)
        by_key = present[np.argsort(criterion.order(sums[place, present]), kind="stable")]
        orders[place] = np.append(by_key, np.setdiff1d(orders[place], by_key))  # what nobody saw goes right
        n_cuts[place] = len(present)
    left = np.cumsum(np.take_along_axis(sums, orders[:, :LUMP, None], axis=1), axis=1)
    before = criterion.risk(total)
    possible = np.arange(LUMP) < n_cuts[:, None]
    gains = []
    for more in (np.zeros_like(missing), np.where(bins.is_category[columns, None], 0.0, missing)):
        first = left + more[:, None]
        second = total[:, None] - first
        enough = possible & (first[..., 0] >= least) & (second[..., 0] >= least)
        gains.append(np.where(enough, before[:, None] - criterion.risk(first) - criterion.risk(second), 0.0))
    places = np.arange(len(columns))
    cuts = np.array([found.argmax(axis=1) for found in gains])
    best = np.array([found[places, cut] for found, cut in zip(gains, cuts, strict=True)])
    to_the_left = best[1] > best[0]
    cut = np.where(to_the_left, cuts[1], cuts[0])
    # where no value is missing, one goes with the majority of the rows, as in the trees of LightGBM
    majority = 2 * left[places, cut, 0] >= total[:, 0]
    missing_left = np.where(missing[:, 0] > 0, to_the_left, majority) & ~bins.is_category[columns]
    gain = np.where(best.max(axis=0) > TINY * (1.0 + np.abs(before)), best.max(axis=0), 0.0)
    return Splits(columns, gain, bins, sums, cut, orders, missing_left)


def least_rows(n: int) -> int:
    """Rows that a leaf must hold: as many as LightGBM's, by `boosting`."""
    return max(1, min(MIN_ROWS, n // 10))


@dataclass(eq=False)
class Grown:
    """One tree: at each position a split and its children, or a leaf with a value."""

    splits: list[Split | None]
    children: list[tuple[int, int]]
    values: list[float]
    shares: list[float]

    @property
    def columns(self) -> np.ndarray:
        return np.unique([split.column for split in self.splits if split is not None]).astype(int)

    def outputs(self, bins: Bins) -> np.ndarray:
        """What it says of rows in the bins that it was grown in."""
        found = np.empty(bins.n_rows)
        waiting = [(0, np.arange(bins.n_rows))]
        while waiting:
            place, at = waiting.pop()
            split = self.splits[place]
            if split is None:
                found[at] = self.values[place]
                continue
            goes = split.goes_left(bins, at)
            waiting += [(self.children[place][0], at[goes]), (self.children[place][1], at[~goes])]
        return found

    @classmethod
    def stump(cls, split: Split, share_left: float) -> Grown:
        """One split: 0 on the left, 1 on the right."""
        return cls([split, None, None], [(1, 2), (1, 1), (2, 2)], [0.0, 0.0, 1.0], [share_left, 0.5, 0.5])


def grow(bins: Bins, statistics: np.ndarray, columns: np.ndarray, depth: int, least: int) -> tuple[Grown, np.ndarray]:
    """A tree of least squares on some columns, and what it says of the rows."""
    tree, outputs, criterion = Grown([], [], [], []), np.zeros(bins.n_rows), Squares()

    def add(at: np.ndarray, levels: int) -> int:
        place = len(tree.splits)
        tree.splits.append(None)
        tree.children.append((place, place))
        tree.values.append(0.0)
        tree.shares.append(0.5)
        split = None
        if levels and len(at) >= 2 * least:
            found = best_splits(bins, at, columns, statistics, criterion, least)
            best = int(found.gains.argmax())
            split = found.split(best) if found.gains[best] > 0 else None
        if split is None:
            sums = statistics[:, at].sum(axis=1)
            tree.values[place] = float(sums[2] / sums[1])
            outputs[at] = tree.values[place]
            return place
        goes = split.goes_left(bins, at)
        tree.splits[place], tree.shares[place] = split, float(goes.mean())
        tree.children[place] = (add(at[goes], levels - 1), add(at[~goes], levels - 1))
        return place

    add(np.arange(bins.n_rows), depth if len(columns) else 0)
    return tree, outputs


def pool_of(trees: Sequence[Grown]) -> TreePool:
    """Trees as flat arrays."""
    starts = np.concatenate([[0], np.cumsum([len(tree.splits) for tree in trees])]).astype(int)
    splits = [split for tree in trees for split in tree.splits]
    children = [
        (start + left, start + right)
        for start, tree in zip(starts, trees, strict=False)
        for left, right in tree.children
    ]
    pieces = [None if split is None else split.categories for split in splits]
    counts = np.array([0 if piece is None else len(piece) for piece in pieces], dtype=int)
    by_category = np.array([piece is not None for piece in pieces], dtype=bool)
    left, right = np.array(children, dtype=int).reshape(-1, 2).T
    return TreePool(
        roots=starts[:-1],
        feature=np.array([-1 if split is None else split.column for split in splits], dtype=int),
        threshold=np.array([0.0 if split is None else split.threshold for split in splits]),
        left=left,
        right=right,
        missing_left=np.array([split is not None and split.missing_left for split in splits], dtype=bool),
        zero_is_missing=np.zeros(len(splits), dtype=bool),
        category_start=np.where(by_category, np.cumsum(counts) - counts, -1),
        category_count=counts,
        category_left=np.concatenate([np.zeros(0, dtype=bool), *(piece for piece in pieces if piece is not None)]),
        value=np.array([value for tree in trees for value in tree.values], dtype=float),
        linear_feature=np.full(len(splits), -1),
        share_left=in_steps(np.array([share for tree in trees for share in tree.shares], dtype=float)),
    )
