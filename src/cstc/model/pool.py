"""Weak learners as flat arrays: one pool of small trees that predicts without the library that grew them.

All trees share one set of node arrays, children are absolute positions, and a leaf points to itself, so
that a block of rows walks all trees at once with a fixed number of array operations.  A leaf gives a
constant, or a multiple of one input column: the latter is how ``weak_learners="identity"`` is stored.
Only numpy is imported here: a loaded model needs nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from ..matrix import blocks, columns_at, dense, is_sparse
from . import native

__all__ = ["TreePool", "add_in_order", "in_steps", "unpack_items"]

FLAT_BLOCK = 1 << 22  # rows x learners whose outputs are held at once
STEPS = 254  # of shares: an even number, so that a half is one of them
ROUTE_BLOCK = 1 << 16  # rows x learners walked at once: small enough for the caches


def add_in_order(outputs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """``outputs @ weights``, one learner after the other: compiled code adds in this order too, to the last bit."""
    total = np.zeros((len(outputs), weights.shape[1]))
    for column, weight in zip(outputs.T, weights, strict=True):
        total += column[:, None] * weight
    return total


def in_steps(shares: np.ndarray) -> np.ndarray:
    """Shares as a model file keeps them, one byte each."""
    return np.round(STEPS * shares) / STEPS


def pack_items(uses: np.ndarray) -> np.ndarray:
    """Bool (n, n_items) as 64-bit words (n, n_words), at least one."""
    packed = np.packbits(uses, axis=1)
    padded = np.zeros((len(packed), max(8, -(-packed.shape[1] // 8) * 8)), dtype=np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)


def unpack_items(bits: np.ndarray, n_items: int) -> np.ndarray:
    """Bool (n, n_items) from packed words (n, n_words), see `TreePool.position_bits`."""
    return np.unpackbits(bits.view(np.uint8), axis=1, count=n_items).view(bool)


@dataclass(frozen=True, eq=False)
class TreePool:
    """Flat trees.

    Attributes
    ----------
    roots : int ndarray of shape (n_learners,)
        Position of each weak learner's root.
    feature : int ndarray of shape (n_positions,)
        Column that is compared, -1 at a leaf.
    threshold : float ndarray
        A row goes left if its value is at most this.
    left, right : int ndarray
        Positions of the children; a leaf's own position at a leaf.
    missing_left : bool ndarray
        Where a missing value goes.
    zero_is_missing : bool ndarray
        Whether zero counts as missing at this split (LightGBM's ``zero_as_missing``).
    category_start : int ndarray
        -1 for a split on numbers, else where this split's row of `category_left` begins.
    category_left : bool ndarray
        First the number of categories is in `category_count`; then which of them go left.
    category_count : int ndarray
        Length of this split's piece of `category_left`.
    value : float ndarray
        Output of a leaf, or the factor of its `linear_feature`.
    linear_feature : int ndarray
        -1, or the column that a leaf multiplies with `value`.
    share_left : float ndarray
        Share of the training rows that went left at a split, in steps of ``1 / STEPS``; a half where it is not known,
        and at leaves.  Where a value is not to be had, both branches are averaged by it (`averaging`).
    """

    roots: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    missing_left: np.ndarray
    zero_is_missing: np.ndarray
    category_start: np.ndarray
    category_count: np.ndarray
    category_left: np.ndarray
    value: np.ndarray
    linear_feature: np.ndarray
    share_left: Any = None

    def __post_init__(self) -> None:
        if self.share_left is None:
            object.__setattr__(self, "share_left", np.full(len(self.feature), 0.5))

    @classmethod
    def identity(cls, n_features: int) -> TreePool:
        """One learner per column that returns the column itself: ``phi(x) = x``."""
        here = np.arange(n_features)
        none = np.full(n_features, -1)
        return cls(
            roots=here,
            feature=none,
            threshold=np.zeros(n_features),
            left=here,
            right=here,
            missing_left=np.zeros(n_features, dtype=bool),
            zero_is_missing=np.zeros(n_features, dtype=bool),
            category_start=none,
            category_count=np.zeros(n_features, dtype=int),
            category_left=np.zeros(0, dtype=bool),
            value=np.ones(n_features),
            linear_feature=here,
        )

    @property
    def n_learners(self) -> int:
        return len(self.roots)

    @property
    def n_positions(self) -> int:
        return len(self.feature)

    @cached_property
    def depth(self) -> int:
        """Longest way from a root to a leaf."""
        depth, level = 0, self.roots
        while True:
            level = level[self.feature[level] >= 0]
            if not len(level):
                return depth
            depth += 1
            level = np.concatenate([self.left[level], self.right[level]])

    def leaves(self, X: Any, learners: np.ndarray | None = None) -> np.ndarray:
        """Position of the leaf that each row reaches in each of the given learners."""
        roots = self.roots if learners is None else self.roots[learners]
        found = np.empty((X.shape[0], len(roots)), dtype=np.int32)
        if found.size == 0:
            return found
        for rows in blocks(X, max(1, ROUTE_BLOCK // len(roots))):
            found[rows] = self._walk(dense(X, rows), roots)
        return found

    def _walk(self, X: np.ndarray, roots: np.ndarray) -> np.ndarray:
        n, n_features = X.shape
        flat = X.ravel()
        row_start = (np.arange(n) * n_features)[:, None]
        has_missing = bool(np.isnan(flat).any())
        position = np.broadcast_to(roots.astype(np.int32), (n, len(roots)))
        for _ in range(self.depth):
            x = flat.take(row_start + self._column.take(position))
            position = self._children.take(2 * position + self.goes_left(position, x, has_missing=has_missing))
        return position

    def goes_left(self, position: np.ndarray, x: np.ndarray, *, has_missing: bool = True) -> np.ndarray:
        """Which way values go at some splits."""
        goes_left = x <= self.threshold.take(position)
        if has_missing:
            goes_left = np.where(np.isnan(x), self.missing_left[position], goes_left)
        if self._any_zero_is_missing:
            is_zero = self.zero_is_missing[position] & (np.abs(x) <= 1e-35)
            goes_left = np.where(is_zero, self.missing_left[position], goes_left)
        if self._any_category:
            self._send_categories(position, x, goes_left)
        return goes_left

    @cached_property
    def _column(self) -> np.ndarray:
        """The column that is looked at, whatever it holds at a leaf."""
        return np.maximum(self.feature, 0).astype(np.int32)

    @cached_property
    def _children(self) -> np.ndarray:
        """Right and left child of each position in turn: one look-up instead of two."""
        return np.column_stack([self.right, self.left]).ravel().astype(np.int32)

    def _send_categories(self, position: np.ndarray, x: np.ndarray, goes_left: np.ndarray) -> None:
        """Overwrite `goes_left` at splits on categories; unknown and missing ones go right."""
        at = self.category_start[position] >= 0
        split, code = position[at], x[at]
        known = (code >= 0) & (code < self.category_count[split])  # false for NaN, too
        code = np.where(known, code, 0).astype(np.int64)
        left = np.zeros(len(code), dtype=bool)
        left[known] = self.category_left[self.category_start[split[known]] + code[known]]
        goes_left[at] = left

    @cached_property
    def _any_category(self) -> bool:
        return bool((self.category_start >= 0).any())

    @cached_property
    def _any_zero_is_missing(self) -> bool:
        return bool(self.zero_is_missing.any())

    def outputs(self, X: np.ndarray, leaves: np.ndarray) -> np.ndarray:
        """``h_t(x)`` for the leaves found by `leaves`."""
        values = self.value[leaves]
        column = self.linear_feature[leaves]
        linear = column >= 0
        if linear.any():
            rows = np.broadcast_to(np.arange(len(X))[:, None], leaves.shape)
            values[linear] *= X[rows[linear], column[linear]]
        return values

    def scores(self, X: Any, weights: np.ndarray) -> np.ndarray:
        """Weighted sums (n, n_outputs) of the outputs, with weights (n_learners, n_outputs)."""
        return self._walk_flat(X, weights)[0]

    def _walk_flat(self, X: Any, weights: np.ndarray, bits: np.ndarray | None = None) -> tuple[Any, Any]:
        """Sums and bought words, as of a tree of one node."""
        n_outputs = weights.shape[1]
        if is_sparse(X):
            columns, narrow = self.narrowed()
            if len(columns) < X.shape[1]:
                return narrow._walk_flat(columns_at(X, columns), weights, bits)
        if native.available():
            ordered = None if bits is None else bits[self.packed(X.shape[1]).order]
            sums, _, words = native.Tree.flat(self, X.shape[1], weights).walk(X, ordered)
            return sums, words
        sums = np.zeros((X.shape[0], n_outputs))
        words = np.zeros((X.shape[0], 0 if bits is None else bits.shape[1]), dtype=np.uint64)
        for rows in blocks(X, max(1, FLAT_BLOCK // max(1, self.n_learners))):
            block = dense(X, rows)
            leaves = self.leaves(block)
            sums[rows] = add_in_order(self.outputs(block, leaves), weights)
            if bits is not None:
                words[rows] = np.bitwise_or.reduce(bits[leaves], axis=1)
        return sums, words

    def packed(self, n_features: int) -> native.Packed:
        """The pool as compiled code reads it, for rows of so many columns."""
        if n_features not in self._packed:
            self._packed[n_features] = native.Packed(self, n_features)
        return self._packed[n_features]

    @cached_property
    def _packed(self) -> dict[int, native.Packed]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """What was worked out and kept does not travel."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def transform(self, X: Any) -> np.ndarray:
        """``Phi``: the outputs of all weak learners, shape (n, n_learners)."""
        found = np.empty((X.shape[0], self.n_learners))
        for rows in blocks(X):
            block = dense(X, rows)
            found[rows] = self.outputs(block, self.leaves(block))
        return found

    def position_uses(self, feature_items: np.ndarray) -> np.ndarray:
        """Bool (n_positions, n_items): what must be paid to get from a root to each position and out of it.

        `feature_items` says which items a feature requires; the identity matrix gives the features.
        """
        return unpack_items(self.position_bits(feature_items)[:-1], feature_items.shape[1])

    def position_bits(self, feature_items: np.ndarray) -> np.ndarray:
        """`position_uses` as packed 64-bit words, with an empty row at the end for "not evaluated" (-1)."""
        words = pack_items(feature_items)
        bits = np.zeros((self.n_positions + 1, words.shape[1]), dtype=np.uint64)
        has_linear = bool((self.linear_feature >= 0).any())
        level, paid = self.roots, np.zeros((self.n_learners, words.shape[1]), dtype=np.uint64)
        while len(level):
            bits[level] = paid
            if has_linear:
                linear = level[self.linear_feature[level] >= 0]
                bits[linear] |= words[self.linear_feature[linear]]
            level = level[self.feature[level] >= 0]
            paid = bits[level] | words[self.feature[level]]
            level, paid = np.concatenate([self.left[level], self.right[level]]), np.concatenate([paid, paid])
        return bits

    def bought_items(self, X: Any, feature_items: np.ndarray) -> np.ndarray:
        """Bool (n, n_items): what the branches of all learners buy for each row."""
        return self.scores_and_items(X, np.ones((self.n_learners, 1)), feature_items)[1]

    def scores_and_items(
        self, X: Any, weights: np.ndarray, feature_items: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """`scores` and `bought_items` in one walk, where every learner has a weight."""
        sums, words = self._walk_flat(X, weights, self.position_bits(feature_items))
        return sums, unpack_items(words, feature_items.shape[1])

    def learner_uses(self, feature_items: np.ndarray) -> np.ndarray:
        """Bool (n_learners, n_items): all items of every learner, whatever branch is taken (``F`` transposed)."""
        asked = [(np.flatnonzero(column >= 0), column) for column in (self.feature, self.linear_feature)]
        pairs = np.concatenate([self.owners[at] * len(feature_items) + column[at] for at, column in asked])
        learners, features = np.divmod(np.unique(pairs), max(1, len(feature_items)))  # each once, by learner
        used, place = np.unique(features, return_inverse=True)
        some, starts = np.unique(learners, return_index=True)
        words = pack_items(feature_items[used])
        bits = np.zeros((self.n_learners, words.shape[1]), dtype=np.uint64)
        if len(some):
            bits[some] = np.bitwise_or.reduceat(words[place], starts, axis=0)
        return unpack_items(bits, feature_items.shape[1])

    def feature_order(self) -> list[int]:
        """The features that are compared, in the order in which they enter: by learner, then left before right."""
        feature, left, right = self.feature.tolist(), self.left.tolist(), self.right.tolist()
        order: dict[int, None] = {}
        for root in self.roots.tolist():
            waiting = [root]
            while waiting:
                at = waiting.pop()
                if feature[at] >= 0:
                    order.setdefault(feature[at])
                    waiting += [right[at], left[at]]
        return list(order)

    @cached_property
    def owners(self) -> np.ndarray:
        """The learner that each position belongs to."""
        owner = np.full(self.n_positions, -1)
        level, learner = self.roots, np.arange(self.n_learners)
        while len(level):
            owner[level] = learner
            inner = self.feature[level] >= 0
            level, learner = level[inner], learner[inner]
            level = np.concatenate([self.left[level], self.right[level]])
            learner = np.concatenate([learner, learner])
        return owner

    def scaled(self, factors: np.ndarray) -> TreePool:
        """The same learners with each output multiplied by its factor."""
        return self._replace(value=self.value * factors[self.owners])

    def on_columns(self, columns: np.ndarray) -> TreePool:
        """Learners that were grown on some columns of a matrix, for the whole matrix."""
        columns = np.append(columns, -1)  # so that -1, "no feature", stays what it is
        return self._replace(feature=columns[self.feature], linear_feature=columns[self.linear_feature])

    def narrowed(self) -> tuple[np.ndarray, TreePool]:
        """The columns that any learner looks at, and the same learners on a matrix of only these.

        Of a wide sparse matrix few columns matter, and only those need to be made dense.
        """
        used = np.unique(np.concatenate([self.feature, self.linear_feature]))
        columns = used[used >= 0]
        place = np.full(int(columns.max(initial=-1)) + 2, -1)  # its last entry keeps -1, "no feature", what it is
        place[columns] = np.arange(len(columns))
        return columns, self._replace(feature=place[self.feature], linear_feature=place[self.linear_feature])

    def subset(self, learners: np.ndarray) -> TreePool:
        """The given learners only, positions renumbered."""
        wanted = np.zeros(self.n_learners, dtype=bool)
        wanted[learners] = True
        kept = np.flatnonzero(wanted[self.owners])
        new = np.full(self.n_positions, -1)
        new[kept] = np.arange(len(kept))
        starts = self.category_start[kept]
        pieces, new_starts, at = [], starts.copy(), 0
        for place in np.flatnonzero(starts >= 0):
            start, count = starts[place], self.category_count[kept[place]]
            pieces.append(self.category_left[start : start + count])
            new_starts[place] = at
            at += count
        return self._replace(
            roots=new[self.roots[learners]],
            left=new[self.left[kept]],
            right=new[self.right[kept]],
            category_start=new_starts,
            category_left=np.concatenate([np.zeros(0, dtype=bool), *pieces]),
            **{name: getattr(self, name)[kept] for name in _PLAIN},
        )

    @staticmethod
    def concatenate(pools: Sequence[TreePool]) -> TreePool:
        """All learners of several pools, in order."""
        shift = np.cumsum([0] + [pool.n_positions for pool in pools])
        category_shift = np.cumsum([0] + [len(pool.category_left) for pool in pools])
        joined = {
            name: np.concatenate([getattr(pool, name) + by for pool, by in zip(pools, shift, strict=False)])
            for name in ("roots", "left", "right")
        }
        joined["category_start"] = np.concatenate(
            [
                np.where(pool.category_start >= 0, pool.category_start + by, -1)
                for pool, by in zip(pools, category_shift, strict=False)
            ]
        )
        for name in (*_PLAIN, "category_left"):
            joined[name] = np.concatenate([getattr(pool, name) for pool in pools])
        return TreePool(**joined)

    def _replace(self, **changes: np.ndarray) -> TreePool:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return TreePool(**(values | changes))


# arrays over positions that need no renumbering when learners are picked or joined
_PLAIN = (
    "feature",
    "threshold",
    "missing_left",
    "zero_is_missing",
    "category_count",
    "value",
    "linear_feature",
    "share_left",
)
