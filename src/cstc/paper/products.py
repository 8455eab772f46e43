"""The two products with ``Phi`` on a GPU: codes of leaves lie there, and only weights and margins travel.

With ``code[i, t]`` the leaf that row i reaches in weak learner t and ``value[t, l]`` what its leaves give (`codes`), a
block of rows is looked up where the codes lie, and multiplied there as a dense matrix:

    block[i, t]  = value.ravel()[t * n_leaves + code[i, t]]
    Phi @ B      = block @ B, block by block
    Phi.T @ M    = sum of block.T @ M[block]

All sums are in double precision.  The operations are those that numpy, CuPy and PyTorch share, so that numpy can stand
in for a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..on_device import Arrays, arrays_on
from .codes import LeafCodes
from .objective import Design

__all__ = ["DesignOnDevice", "arrays_for_products"]

CELLS = 1 << 27  # that are looked up at a time: a GiB of numbers, and a GiB of their places
GIB = 1 << 30


def arrays_for_products(device: str) -> Arrays:
    """What puts ``Phi`` on a GPU, or a sentence that says what is missing."""
    found = arrays_on(device)
    if found is None:
        raise ImportError(
            f"method=Paper() with device={device!r} needs CuPy or PyTorch, and there is none that can use the GPU; "
            "pip install cupy-cuda12x or cupy-cuda13x, as CUDA is"
        )
    return found


class DesignOnDevice(Design):
    """``Phi`` as codes of leaves, on a device."""

    def __init__(self, phi: LeafCodes, arrays: Arrays, cells: int = CELLS):
        super().__init__(phi)
        self._arrays = arrays
        step = max(1, cells // max(1, self.n_learners))
        self._rows = [slice(start, start + step) for start in range(0, self.n_rows, step)]
        self._check_room(phi, cells)
        values = phi.values.astype(np.float64)
        self._codes, self._values = arrays.put(phi.codes), arrays.put(values.ravel())
        self._starts = arrays.put(np.arange(self.n_learners, dtype=np.int64) * values.shape[1])

    def _check_room(self, phi: LeafCodes, cells: int) -> None:
        needed, free = phi.codes.nbytes + 3 * 8 * min(cells, phi.codes.size), self._arrays.free()
        if free is not None and needed > free:
            raise MemoryError(
                f"{self.n_rows} rows and {self.n_learners} weak learners need about {needed / GIB:.1f} GiB on the GPU, "
                f"and {free / GIB:.1f} are free; take a smaller n_weak_learners, fewer rows, or device='cpu'"
            )

    def _block(self, rows: slice) -> Any:
        return self._values.take(self._arrays.whole(self._codes[rows]) + self._starts)

    def matmul(self, weights: np.ndarray) -> np.ndarray:
        there = self._arrays.put(np.ascontiguousarray(weights, dtype=np.float64))
        found = np.empty((self.n_rows, *weights.shape[1:]))
        for rows in self._rows:
            found[rows] = self._arrays.get(self._block(rows) @ there)
        return found

    def rmatmul(self, margins: np.ndarray) -> np.ndarray:
        there = self._arrays.put(np.ascontiguousarray(margins, dtype=np.float64))
        found = np.zeros((self.n_learners, *margins.shape[1:]))
        for rows in self._rows:
            found += self._arrays.get(self._block(rows).T @ there[rows])
        return found
