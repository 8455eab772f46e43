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

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..on_device import Arrays, arrays_on, is_about_memory
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
        self._needed, free = phi.codes.nbytes + 3 * 8 * min(cells, phi.codes.size), arrays.free()
        if free is not None and self._needed > free:
            raise self._too_little(free)
        values = phi.values.astype(np.float64)
        with self._told_of_memory():
            self._codes, self._values = arrays.put(phi.codes), arrays.put(values.ravel())
            self._starts = arrays.put(np.arange(self.n_learners, dtype=np.int64) * values.shape[1])

    def _too_little(self, free: int) -> MemoryError:
        return MemoryError(
            f"{self.n_rows} rows and {self.n_learners} weak learners need about {self._needed / GIB:.1f} GiB on the "
            f"GPU, and {free / GIB:.1f} are free; take a smaller n_weak_learners, fewer rows, or device='cpu'"
        )

    @contextlib.contextmanager
    def _told_of_memory(self) -> Iterator[None]:
        """One sentence where others take the room while this computes, whatever the library calls that."""
        try:
            yield
        except Exception as error:
            if not is_about_memory(error):
                raise
            raise self._too_little(self._arrays.free() or 0) from error

    def _block(self, rows: slice) -> Any:
        return self._values.take(self._arrays.whole(self._codes[rows]) + self._starts)

    def matmul(self, weights: np.ndarray) -> np.ndarray:
        found = np.empty((self.n_rows, *weights.shape[1:]))
        with self._told_of_memory():
            there = self._arrays.put(np.ascontiguousarray(weights, dtype=np.float64))
            for rows in self._rows:
                found[rows] = self._arrays.get(self._block(rows) @ there)
        return found

    def rmatmul(self, margins: np.ndarray) -> np.ndarray:
        found = np.zeros((self.n_learners, *margins.shape[1:]))
        with self._told_of_memory():
            there = self._arrays.put(np.ascontiguousarray(margins, dtype=np.float64))
            for rows in self._rows:
                found += self._arrays.get(self._block(rows).T @ there[rows])
        return found
