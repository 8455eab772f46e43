"""Compiled: one row among learners in flat arrays, walked by C (native/_native.c).

The walk itself is a C object: the known values of a row, and for each learner of the current step the position where
it waits, so that nothing is walked twice.  It adds in the order of the learners, and its sums are those of
`FittedTree.decision_function` to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...model import TreePool, native

if TYPE_CHECKING:
    from .choice import Walk

__all__ = ["NativePlan"]

#: As in C: what one learner adds to one output.
ENTRY = np.dtype([("weight", "<f8"), ("learner", "<i4"), ("column", "<i4")])
#: Entries as bytes, and the number of outputs.
NativeWeights = tuple[bytes, int]


class NativePlan:
    """Learners as flat arrays, and the tree of classifiers over them.

    Its walks also go down the tree by themselves: ``go(events, path)`` passes gates, noting them and the nodes, until
    features are missing (a tuple of them) or the margins are there (a list).  Where it is then, the attributes `node`,
    `terminal` and `evaluated` say.  ``go_buying`` does the same with values that came along and are not bought yet:
    where they are all that a node lacks, it is walked at once, and what it needed is bought, wave by wave.
    ``fill_floats(features, raw, known, kinds, move)`` fills several features, if nothing must be encoded, and says
    whether it did.
    """

    def __init__(self, pool: TreePool, tree: native.Tree) -> None:
        self._pool = pool
        self.start: Callable[[], Walk] = tree.start

    def step(self, learners: list[int]) -> bytes:
        return np.array(learners, dtype=np.int32).tobytes()

    def weights(self, weights: np.ndarray) -> NativeWeights:
        sums = native.Sums.of(weights[:, None, :], self._pool)
        entries = np.zeros(len(sums.weight), dtype=ENTRY)
        entries["weight"], entries["learner"], entries["column"] = sums.weight, sums.learner, sums.column
        return entries.tobytes(), weights.shape[1]
