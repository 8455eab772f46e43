"""Rows in files that all workers see, and parts of them.

Matrices are written column by column: an ensemble learns from some columns of all rows.  They are read and not mapped
into memory, since a mapped file counts as memory of the worker that reads it, and workers have limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..matrix import cells_at, is_sparse
from ..rows import Rows, Units

__all__ = ["InMemory", "InScratch", "Part", "Stored"]

COLUMNS_AT_ONCE = 16  # that are turned from rows to columns


class Stored(Protocol):
    """Rows in files, as a task names them: small, and the same on every machine.

    Attributes
    ----------
    key : str
        Other rows have another one.
    n_rows, n_columns : int
    """

    @property
    def key(self) -> str: ...

    @property
    def n_rows(self) -> int: ...

    @property
    def n_columns(self) -> int: ...

    def targets(self) -> tuple[np.ndarray, np.ndarray]:
        """Targets in standard units, and weights."""

    def cells(self, columns: np.ndarray, at: np.ndarray | None = None) -> Any:
        """Some columns of all rows, or of those of the given numbers, which rise: a matrix."""

    def steps(self, at: np.ndarray, n_rows: int) -> Iterator[slice]:
        """The given rows in pieces that are read together, of about so many rows."""


@dataclass(frozen=True)
class InScratch:
    """Rows that were in memory, written into a folder.

    Attributes
    ----------
    folder : str
    n_rows, n_columns : int
    dtype : str
        Of the cells.
    sparse : bool
    """

    folder: str
    n_rows: int
    n_columns: int
    dtype: str
    sparse: bool

    @property
    def key(self) -> str:
        return self.folder

    @classmethod
    def write(cls, rows: Rows, folder: Path) -> InScratch:
        """Write rows into an empty folder."""
        X = rows.X
        np.save(folder / "y.npy", rows.y)
        np.save(folder / "weights.npy", rows.weights)
        if is_sparse(X):
            from scipy.sparse import save_npz

            save_npz(folder / "X.npz", X, compressed=False)
        else:
            with (folder / "X.bin").open("wb") as file:
                for start in range(0, X.shape[1], COLUMNS_AT_ONCE):
                    np.ascontiguousarray(X[:, start : start + COLUMNS_AT_ONCE].T).tofile(file)
        n_rows, n_columns = X.shape
        return cls(str(folder), n_rows, n_columns, X.dtype.str, is_sparse(X))

    def targets(self) -> tuple[np.ndarray, np.ndarray]:
        folder = Path(self.folder)
        return np.load(folder / "y.npy"), np.load(folder / "weights.npy")

    def cells(self, columns: np.ndarray, at: np.ndarray | None = None) -> Any:
        if self.sparse:
            from scipy.sparse import load_npz

            X = load_npz(Path(self.folder) / "X.npz")
            return cells_at(X, np.arange(self.n_rows) if at is None else at, columns)
        dtype = np.dtype(self.dtype)
        first, end = (0, self.n_rows) if at is None or not len(at) else (int(at[0]), int(at[-1]) + 1)
        found = np.empty((end - first if at is None else len(at), len(columns)), dtype=dtype, order="F")
        with (Path(self.folder) / "X.bin").open("rb") as file:
            for place, column in enumerate(columns.tolist()):
                file.seek((column * self.n_rows + first) * dtype.itemsize)
                values = np.fromfile(file, dtype, end - first)
                if len(values) < end - first:
                    raise OSError(f"{self.folder}/X.bin ends too early")
                found[:, place] = values if at is None else values[at - first]
        return found

    def steps(self, at: np.ndarray, n_rows: int) -> Iterator[slice]:
        for start in range(0, len(at), n_rows):
            yield slice(start, start + n_rows)


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the rows that are stored, one bit for each of those.

    Attributes
    ----------
    stored : Stored
    bits : bytes or None
        None: all of them.
    """

    stored: Stored
    bits: bytes | None = None

    @property
    def key(self) -> tuple[str, bytes | None]:
        return self.stored.key, self.bits

    def __len__(self) -> int:
        return self.stored.n_rows if self.bits is None else len(self.numbers())

    def numbers(self) -> np.ndarray:
        """Of its rows, among those that are stored."""
        return self._numbers

    @cached_property
    def _numbers(self) -> np.ndarray:
        if self.bits is None:
            return np.arange(self.stored.n_rows)
        return np.flatnonzero(np.unpackbits(np.frombuffer(self.bits, np.uint8), count=self.stored.n_rows))

    def __reduce__(self) -> tuple[Any, ...]:
        """What was worked out does not travel."""
        return Part, (self.stored, self.bits)

    def take(self, at: np.ndarray) -> Part:
        """The part of the rows of the given numbers, in rising order, or where a mask holds."""
        own = self.numbers()[at]
        if (np.diff(own) <= 0).any():
            raise ValueError("rows of a part must stay in their order")
        mask = np.zeros(self.stored.n_rows, dtype=bool)
        mask[own] = True
        return Part(self.stored, np.packbits(mask).tobytes())

    def read_as(self, reading: Any) -> Part:
        """The same, of rows in a folder, with all that is needed to read them."""
        return Part(self.stored.read_as(reading), self.bits)  # type: ignore[attr-defined]

    def in_units(self, units: Units) -> Part:
        """The same with targets in standard units."""
        return Part(self.stored.in_units(units), self.bits)  # type: ignore[attr-defined]

    def targets(self) -> tuple[np.ndarray, np.ndarray]:
        y, weights = self.stored.targets()
        return (y, weights) if self.bits is None else (y[self.numbers()], weights[self.numbers()])

    def cells(self, columns: np.ndarray, at: np.ndarray | None = None) -> Any:
        """Some columns of its rows, or of those of the given numbers among them."""
        if self.bits is not None:
            at = self.numbers() if at is None else self.numbers()[at]
        return self.stored.cells(columns, at)

    def steps(self, at: np.ndarray, n_rows: int) -> Iterator[slice]:
        return self.stored.steps(self.numbers()[at], n_rows)


@dataclass(frozen=True, eq=False)
class InMemory:
    """Rows of this process, for tasks that run here."""

    rows: Rows

    @property
    def key(self) -> str:
        return f"memory {id(self.rows)}"

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    @property
    def n_columns(self) -> int:
        return int(self.rows.X.shape[1])

    def targets(self) -> tuple[np.ndarray, np.ndarray]:
        return self.rows.y, self.rows.weights

    def cells(self, columns: np.ndarray, at: np.ndarray | None = None) -> Any:
        return cells_at(self.rows.X, np.arange(self.n_rows) if at is None else at, columns)

    def steps(self, at: np.ndarray, n_rows: int) -> Iterator[slice]:
        for start in range(0, len(at), n_rows):
            yield slice(start, start + n_rows)
