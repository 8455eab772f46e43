"""The compiled walk (native/_native.c), where it was built; numpy does the same elsewhere, bit for bit.

``CSTC_NATIVE=0`` switches it off.  What C reads is packed here once for each pool, and checked: whatever positions,
columns and categories a pool names must exist, since C looks them up without asking.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..matrix import blocks, dense

if TYPE_CHECKING:
    from .pool import TreePool
    from .shape import TreeShape

__all__ = ["Packed", "Sums", "available", "usable_cores", "walk"]

_native: Any = None
if os.environ.get("CSTC_NATIVE", "1") != "0":
    try:
        from .. import _native  # type: ignore[no-redef]
    except ImportError:  # no compiler when it was installed
        _native = None

#: As in C: one position of a learner, and how a learner is walked.
POSITION = np.dtype(
    [("threshold", "<f8"), ("feature", "<i4"), ("right", "<i4"), ("left", "<i4"), ("kind", "<u4")], align=True
)
LEARNER = np.dtype([("root", "<i4"), ("depth", "<i4"), ("kinds", "<u4")], align=True)
MISSING_LEFT, ZERO_IS_MISSING, CATEGORICAL, LINEAR = 1, 2, 4, 8
ROWS_OF_A_THREAD = 2048  # with fewer, another thread is not worth its start
ROWS_OF_A_CALL = 8192  # between two calls, who waits can be interrupted
NONE = np.zeros(0, dtype=np.uint64)


def available() -> bool:
    """Whether rows are walked by compiled code."""
    return _native is not None


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
    """A pool as C reads it."""

    def __init__(self, pool: TreePool, n_features: int):
        _check(pool, n_features)
        is_leaf, is_linear = pool.feature < 0, pool.linear_feature >= 0
        positions = np.zeros(pool.n_positions, dtype=POSITION)
        positions["threshold"] = np.where(is_leaf, pool.value, pool.threshold)
        positions["feature"] = np.where(is_leaf, np.maximum(pool.linear_feature, 0), pool.feature)
        positions["right"], positions["left"] = pool.right, pool.left
        kind = MISSING_LEFT * pool.missing_left.astype(np.uint32) + ZERO_IS_MISSING * pool.zero_is_missing
        kind = np.where(pool.category_start >= 0, CATEGORICAL, kind)
        positions["kind"] = np.where(is_leaf, LINEAR * is_linear, kind)
        learners = np.zeros(pool.n_learners, dtype=LEARNER)
        learners["root"], learners["depth"] = pool.roots, _depths(pool)
        used = pool.owners >= 0
        np.bitwise_or.at(learners["kinds"], pool.owners[used], positions["kind"][used])
        self.arrays = (
            positions,
            learners,
            np.ascontiguousarray(pool.category_start, dtype=np.int32),
            np.ascontiguousarray(pool.category_count, dtype=np.int32),
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
    )
    if not right:
        raise ValueError("the weak learners name positions, columns or categories that do not exist")


def _within(numbers: np.ndarray, n: int) -> bool:
    return not len(numbers) or (int(numbers.min()) >= 0 and int(numbers.max()) < n)


def _depths(pool: TreePool) -> np.ndarray:
    """Longest way from the root of each learner to a leaf."""
    depths = np.zeros(pool.n_learners, dtype=np.int32)
    level, owner = pool.roots, np.arange(pool.n_learners)
    for depth in range(1, pool.n_positions + 1):
        inner = pool.feature[level] >= 0
        level, owner = level[inner], owner[inner]
        if not len(level):
            return depths
        depths[owner] = depth
        level, owner = np.concatenate([pool.left[level], pool.right[level]]), np.concatenate([owner, owner])
    return depths


def walk(
    packed: Packed,
    X: Any,
    *,
    routes: Sums,
    predicts: Sums,
    shape: TreeShape,
    thresholds: np.ndarray,
    intercepts: np.ndarray,
    bits: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Send rows down a tree: margins (n, n_outputs), terminals (n,) and, with `bits`, items as words (n, n_words).

    C reads arrays in double precision, row by row.  Rows of another kind become one block by block.
    """
    n, n_features = X.shape
    n_nodes, n_outputs = intercepts.shape
    margins, terminals = np.empty((n, n_outputs)), np.empty(n, dtype=np.int32)
    n_words = 0 if bits is None else bits.shape[1]
    bought = np.zeros((n, n_words), dtype=np.uint64)
    tree = (
        *routes.arrays,
        *predicts.arrays,
        n_nodes,
        n_outputs,
        np.ascontiguousarray(shape.upper, dtype=np.int32),
        np.ascontiguousarray(shape.lower, dtype=np.int32),
        np.ascontiguousarray(thresholds, dtype=np.float64),
        np.ascontiguousarray(intercepts, dtype=np.float64),
    )
    pool = (*packed.arrays, NONE if bits is None else bits, n_words)

    ready = isinstance(X, np.ndarray) and X.dtype == np.float64 and X.flags.c_contiguous

    def part(start: int, stop: int) -> None:
        own = X[start:stop]
        for block in [slice(0, stop - start)] if ready else blocks(own):
            rows, at = dense(own, block), slice(start + block.start, start + block.stop)
            out = margins[at], terminals[at], bought[at]
            _native.run(rows, len(rows), n_features, *pool, *tree, *out, bits is not None)

    _in_threads(part, n)
    return margins, terminals, bought


def _in_threads(part: Callable[[int, int], None], n: int) -> None:
    """Parts of the rows side by side, in as many threads as are worth it."""
    n_threads = min(usable_cores(), n // ROWS_OF_A_THREAD) if n >= 2 * ROWS_OF_A_THREAD else 1
    if n_threads <= 1:
        for start in range(0, n, ROWS_OF_A_CALL):
            part(start, min(start + ROWS_OF_A_CALL, n))
        return
    cuts = np.linspace(0, n, n_threads + 1).astype(int).tolist()
    failed: list[BaseException] = []

    def run(start: int, stop: int) -> None:
        try:
            for first in range(start, stop, ROWS_OF_A_CALL):
                if failed:  # elsewhere
                    return
                part(first, min(first + ROWS_OF_A_CALL, stop))
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
