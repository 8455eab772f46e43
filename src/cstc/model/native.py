"""The compiled walk (native/_native.c), where it was built; numpy does the same elsewhere, bit for bit.

Beside it stand learners that are rewritten without some columns, and the two products that training needs of codes of
leaves, where numpy gives the same up to rounding.

``CSTC_NATIVE=0`` switches all of it off.  What the walk reads is packed here once for each pool, and checked: whatever
positions, columns and categories a pool names must exist, since C looks them up without asking.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import matrix

if TYPE_CHECKING:
    from .pool import TreePool
    from .shape import TreeShape

__all__ = [
    "Packed",
    "Sums",
    "Tree",
    "any_infinite",
    "available",
    "rewritten",
    "times_codes",
    "transposed_codes_times",
    "usable_cores",
]

_native: Any = None
if os.environ.get("CSTC_NATIVE", "1") != "0":
    try:
        from .. import _native  # type: ignore[no-redef]
    except ImportError:  # no compiler when it was installed
        _native = None

#: As in C: one position of a learner, and how a learner is walked.
POSITION = np.dtype([("threshold", "<f8"), ("child", "<i4"), ("what", "<u4")], align=True)
MADE = np.dtype([("origin", "<i8"), ("left", "<i8"), ("right", "<i8"), ("value", "<f8")])
LEARNER = np.dtype([("root", "<i4"), ("depth", "<i4"), ("kinds", "<u4")], align=True)
MISSING_LEFT, ZERO_IS_MISSING, CATEGORICAL, LINEAR, INNER, KIND_BITS = 1, 2, 4, 8, 16, 5
ROWS_OF_A_THREAD = 2048  # with fewer, another thread is not worth its start
ROWS_OF_A_CALL = 8192  # between two calls, who waits can be interrupted
LEARNERS_OF_A_THREAD = 64  # their codes of a row are a line of the cache
#: C takes 8, 4, 2 or 1 columns of a matrix in one pass over the codes; so many more make one pass of two or three.
FURTHER_COLUMNS = (0, 0, 0, 1, 0, 3, 2, 1)


def available() -> bool:
    """Whether rows are walked by compiled code."""
    return _native is not None


def any_infinite(X: Any) -> bool:
    """Whether a matrix holds an infinite value; compiled, since it counts where there is one row."""
    if _native is not None and X.__class__ is np.ndarray and X.dtype == np.float64:
        try:
            return _native.any_infinite(X)
        except (BufferError, ValueError):  # not in one piece
            pass
    return matrix.any_infinite(X)


def usable_cores() -> int:
    """Cores that this process may use: by affinity, by the quota of its control group, and by OMP_NUM_THREADS."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        cores = os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as quota:
            most, period = quota.read().split()
        if most != "max":
            cores = min(cores, max(1, int(most) // int(period)))
    except (OSError, ValueError):
        pass
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores, int(wanted)) if wanted.isdigit() and int(wanted) else cores)


@dataclass(frozen=True, eq=False)
class Sums:
    """For each of some weighted sums of learners, its entries in the order of the learners.

    Attributes
    ----------
    start : int64 ndarray of shape (n_sums + 1,)
    learner, column : int32 ndarray of shape (n_entries,)
        Which learner, and the output that it adds to.
    weight : ndarray of shape (n_entries,)
    """

    start: np.ndarray
    learner: np.ndarray
    column: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, weights: np.ndarray, pool: TreePool) -> Sums:
        """From dense weights (n_learners, n_sums, n_outputs)."""
        used = weights != 0
        # a column that is passed on may be missing, and nothing times NaN is NaN: numpy adds that too
        passes_on = np.zeros(pool.n_learners, dtype=bool)
        passes_on[pool.owners[(pool.linear_feature >= 0) & (pool.owners >= 0)]] = True
        used |= passes_on[:, None, None] & used.any(axis=2, keepdims=True)
        number, learner, column = np.nonzero(used.transpose(1, 0, 2))
        start = np.searchsorted(number, np.arange(weights.shape[1] + 1))
        return cls(
            start.astype(np.int64),
            learner.astype(np.int32),
            column.astype(np.int32),
            np.ascontiguousarray(weights[learner, number, column], dtype=np.float64),
        )

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.start, self.learner, self.column, self.weight


class Packed:
    """A pool as C reads it: the positions of a learner stand together, level by level, and siblings side by side.

    Attributes
    ----------
    arrays : tuple of ndarray
    order : int ndarray
        The pool's position of each position here.
    """

    def __init__(self, pool: TreePool, n_features: int):
        _check(pool, n_features)
        self.order, children, starts, depths = _level_by_level(pool)
        is_leaf, is_linear = pool.feature < 0, pool.linear_feature >= 0
        kind = MISSING_LEFT * pool.missing_left.astype(np.uint32) + ZERO_IS_MISSING * pool.zero_is_missing
        kind = INNER + np.where(pool.category_start >= 0, CATEGORICAL, kind)
        kind = np.where(is_leaf, LINEAR * is_linear, kind).astype(np.uint32)
        column = np.where(is_leaf, np.maximum(pool.linear_feature, 0), pool.feature).astype(np.uint32)
        positions = np.zeros(len(self.order), dtype=POSITION)
        positions["threshold"] = np.where(is_leaf, pool.value, pool.threshold)[self.order]
        positions["what"] = ((column << KIND_BITS) + kind)[self.order]
        positions["child"] = children
        learners = np.zeros(pool.n_learners, dtype=LEARNER)
        learners["root"], learners["depth"] = starts, depths
        if len(starts):
            learners["kinds"] = np.bitwise_or.reduceat(kind[self.order], starts)
        self.arrays = (
            positions,
            learners,
            np.ascontiguousarray(pool.category_start[self.order], dtype=np.int32),
            np.ascontiguousarray(pool.category_count[self.order], dtype=np.int32),
            np.ascontiguousarray(pool.category_left, dtype=np.uint8),
        )


def _check(pool: TreePool, n_features: int) -> None:
    n = pool.n_positions
    inner = pool.feature >= 0
    by_category = inner & (pool.category_start >= 0)
    ends = pool.category_start[by_category] + pool.category_count[by_category]
    right = (
        _within(pool.roots, n)
        and _within(pool.left, n)
        and _within(pool.right, n)
        and bool((pool.feature < n_features).all())
        and bool((pool.linear_feature < n_features).all())
        and bool((pool.category_count[by_category] >= 0).all())
        and bool((ends <= len(pool.category_left)).all())
        and n < 2**31
        and n_features < 2**27
    )
    if not right:
        raise ValueError("the weak learners name positions, columns or categories that do not exist")


def _within(numbers: np.ndarray, n: int) -> bool:
    return not len(numbers) or (int(numbers.min()) >= 0 and int(numbers.max()) < n)


def _level_by_level(pool: TreePool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """All positions, learner by learner, and each learner level by level, the right child before the left one.

    Returns the pool's position of each, the place of its right child (its own at a leaf), and for each learner where
    it begins and its depth.
    """
    level, owner = pool.roots, np.arange(pool.n_learners)
    found, owners, children = [level], [owner], []
    depths = np.zeros(pool.n_learners, dtype=np.int32)
    n, most = len(level), pool.n_positions * pool.n_learners
    while len(level):
        inner = pool.feature[level] >= 0
        here = n - len(level) + np.arange(len(level))
        here[inner] = n + 2 * np.arange(np.count_nonzero(inner))
        children.append(here)
        level, owner = level[inner], np.repeat(owner[inner], 2)
        level = np.column_stack([pool.right[level], pool.left[level]]).ravel()
        depths[owner] += 1  # once for each learner that goes on, however many positions it has there
        found.append(level)
        owners.append(owner)
        n += len(level)
        if n > most:
            raise ValueError("the weak learners go round in circles")
    by_learner = np.argsort(np.concatenate(owners), kind="stable")
    place = np.empty(n, dtype=np.int64)
    place[by_learner] = np.arange(n)
    after = np.concatenate([*children, np.zeros(0, dtype=np.int64)])
    order = np.concatenate(found)[by_learner]
    return order, place[after[by_learner]], place[: pool.n_learners], depths


class Tree:
    """A tree of classifiers as C reads it, and how rows are sent down.

    Parameters
    ----------
    pool : TreePool
    n_features : int
    routes : ndarray of shape (n_learners, n_nodes)
    predicts : ndarray of shape (n_learners, n_nodes, n_outputs)
    shape : TreeShape
    thresholds : ndarray of shape (n_nodes,)
    intercepts : ndarray of shape (n_nodes, n_outputs)
    """

    def __init__(
        self,
        pool: TreePool,
        n_features: int,
        *,
        routes: np.ndarray,
        predicts: np.ndarray,
        shape: TreeShape,
        thresholds: np.ndarray,
        intercepts: np.ndarray,
    ):
        self._n_outputs = intercepts.shape[1]
        arrays = (
            *pool.packed(n_features).arrays,
            *Sums.of(routes[:, :, None], pool).arrays,
            *Sums.of(predicts, pool).arrays,
            np.ascontiguousarray(shape.upper, dtype=np.int32),
            np.ascontiguousarray(shape.lower, dtype=np.int32),
            np.ascontiguousarray(thresholds, dtype=np.float64),
            np.ascontiguousarray(intercepts, dtype=np.float64),
        )
        tree = _native.Tree(arrays, n_features, self._n_outputs)
        self._run = tree.run
        self.start: Callable[[], Any] = tree.start  #: a walk of one row of which nothing is known; see `serving.walk`

    @classmethod
    def flat(cls, pool: TreePool, n_features: int, weights: np.ndarray) -> Tree:
        """One node that adds up the learners with weights (n_learners, n_outputs)."""
        from .shape import TreeShape

        return cls(
            pool,
            n_features,
            routes=np.zeros((pool.n_learners, 1)),
            predicts=weights[:, None, :],
            shape=TreeShape.full(1),
            thresholds=np.zeros(1),
            intercepts=np.zeros((1, weights.shape[1])),
        )

    def walk(self, X: Any, bits: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Margins (n, n_outputs), terminals (n,) and, with `bits`, items as words (n, n_words).

        C reads arrays in double precision, row by row.  Rows of another kind become one block by block.
        """
        n = X.shape[0]
        margins, terminals = np.empty((n, self._n_outputs)), np.empty(n, dtype=np.int32)
        bought = None if bits is None else np.zeros((n, bits.shape[1]), dtype=np.uint64)

        ready = X.__class__ is np.ndarray and X.dtype == np.float64

        def part(start: int, stop: int) -> None:
            own = X[start:stop]
            for block in [slice(0, stop - start)] if ready else matrix.blocks(own):
                rows, at = _in_one_piece(own[block]), slice(start + block.start, start + block.stop)
                self._run(rows, margins[at], terminals[at], bits, None if bought is None else bought[at])

        if ready and n < 2 * ROWS_OF_A_THREAD:
            self._run(_in_one_piece(X), margins, terminals, bits, bought)
        else:
            _in_threads(part, n)
        return margins, terminals, bought


def _in_one_piece(X: Any) -> np.ndarray:
    """Rows as C reads them."""
    X = matrix.dense(X)
    return X if X.flags.aligned else X.copy()


def rewritten(
    pool: TreePool, learners: np.ndarray, dead_split: np.ndarray, dead_leaf: np.ndarray, means: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Some learners without what is dead: their positions as `MADE`, the new roots, and how many each of them has.

    None where there is no compiled code; `model.averaging` says what they are.
    """
    if _native is None:
        return None
    numbers = (pool.roots[learners], pool.feature, pool.left, pool.right, pool.linear_feature)
    values = (pool.share_left, pool.value)
    dead = (dead_split + 2 * dead_leaf).astype(np.uint8)
    made, roots, counts = _native.rewrite(
        *(np.require(each, np.int64, ["C", "A"]) for each in numbers),
        *(np.require(each, np.float64, ["C", "A"]) for each in values),
        dead,
        np.require(means, np.float64, ["C", "A"]),
    )
    return np.frombuffer(made, MADE), np.frombuffer(roots, np.int64), np.frombuffer(counts, np.int64)


def times_codes(codes: np.ndarray, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """``Phi @ weights`` of weak learners whose outputs are ``values[t, codes[i, t]]``; threads take parts of the rows.

    All codes must be below the number of columns of `values`: C looks them up without asking.
    """
    return _multiply(codes, values, weights, False, codes.shape[0], ROWS_OF_A_THREAD, ROWS_OF_A_CALL)


def transposed_codes_times(codes: np.ndarray, values: np.ndarray, margins: np.ndarray) -> np.ndarray:
    """``Phi.T @ margins``; threads take parts of the learners, so that their number changes no sum."""
    n_learners = codes.shape[1]
    return _multiply(codes, values, margins, True, n_learners, LEARNERS_OF_A_THREAD, n_learners)


def _multiply(
    codes: np.ndarray, values: np.ndarray, other: np.ndarray, transposed: bool, n: int, of_a_thread: int, of_a_call: int
) -> np.ndarray:
    n_columns = other.shape[1]
    further = FURTHER_COLUMNS[n_columns % 8]
    sums = np.zeros((n, n_columns + further))
    if not (sums.size and codes.size):
        return sums[:, :n_columns]
    if further:
        other = np.pad(other, [(0, 0), (0, further)])
    codes = np.require(codes, requirements=["C", "A"])
    values, other = (np.require(each, np.float64, ["C", "A"]) for each in (values, other))
    sizes = (*codes.shape, values.shape[1], other.shape[1])

    def part(start: int, stop: int) -> None:
        _native.multiply(codes, values, other, sums, sizes, transposed, start, stop)

    _in_threads(part, n, of_a_thread, of_a_call)
    return np.ascontiguousarray(sums[:, :n_columns])


def _in_threads(
    part: Callable[[int, int], None], n: int, of_a_thread: int = ROWS_OF_A_THREAD, of_a_call: int = ROWS_OF_A_CALL
) -> None:
    """Parts of the rows, or of what else there are `n` of, side by side, in as many threads as are worth it."""
    n_threads = min(usable_cores(), n // of_a_thread) if n >= 2 * of_a_thread else 1
    if n_threads <= 1:
        for start in range(0, n, of_a_call):
            part(start, min(start + of_a_call, n))
        return
    cuts = np.linspace(0, n, n_threads + 1).astype(int).tolist()
    failed: list[BaseException] = []

    def run(start: int, stop: int) -> None:
        try:
            for first in range(start, stop, of_a_call):
                if failed:  # elsewhere
                    return
                part(first, min(first + of_a_call, stop))
        except BaseException as error:  # handed on to the caller
            failed.append(error)

    threads = [threading.Thread(target=run, args=ends, daemon=True) for ends in pairwise(cuts[1:])]
    for thread in threads:
        thread.start()
    run(cuts[0], cuts[1])
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
