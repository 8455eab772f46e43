"""Rows in a folder of Parquet files, read by whoever needs them, as the driver reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ..folders import Folder
from ..model.schema import encode
from ..rows import Units

__all__ = ["InFolder", "Reading"]


@dataclass(frozen=True, eq=False)
class Reading:
    """How columns of a folder become rows.

    Attributes
    ----------
    names : tuple of str
        The features, in their order.
    categories : mapping of str to list
        Of those that hold categories.
    dtype : str
        Of the cells.
    classes : ndarray or None
        Where targets are classes, a target is the number of its class.
    class_weights : ndarray or None
        What a row of each class counts.
    units : Units
        Of the targets.
    """

    names: tuple[str, ...]
    categories: Mapping[str, list]
    dtype: str
    classes: np.ndarray | None = None
    class_weights: np.ndarray | None = None
    units: Units = field(default_factory=Units)


@dataclass(frozen=True, eq=False)
class InFolder:
    """Some row groups of a folder.

    Attributes
    ----------
    folder : Folder
    target : str
        The column of the targets.
    weight : str or None
        The column of the weights.
    groups : tuple of int or None
        Places of row groups, in rising order; None: all.
    reading : Reading or None
        None while nobody knows yet.
    """

    folder: Folder
    target: str
    weight: str | None = None
    groups: tuple[int, ...] | None = None
    reading: Reading | None = None

    def read_as(self, reading: Reading) -> InFolder:
        return replace(self, reading=reading)

    def of_groups(self, groups: tuple[int, ...]) -> InFolder:
        return replace(self, groups=groups)

    def in_units(self, units: Units) -> InFolder:
        """The same with targets in standard units."""
        return replace(self, reading=replace(self._reading, units=units))

    @property
    def _reading(self) -> Reading:
        assert self.reading is not None
        return self.reading

    @cached_property
    def key(self) -> str:
        reading = self._reading
        return f"{self.folder.path} {self.target} {self.weight} {self.groups} {reading.units} {reading.class_weights}"

    @cached_property
    def _places(self) -> tuple[int, ...]:
        return tuple(range(len(self.folder.groups))) if self.groups is None else self.groups

    @cached_property
    def _starts(self) -> np.ndarray:
        """The number of the first row of each group, and of the row after the last."""
        return np.cumsum([0, *(self.folder.groups[place].n_rows for place in self._places)])

    @property
    def n_rows(self) -> int:
        return int(self._starts[-1])

    @property
    def n_columns(self) -> int:
        return len(self._reading.names)

    def targets(self) -> tuple[np.ndarray, np.ndarray]:
        reading = self._reading
        table = self.folder.read([self.target, *([self.weight] if self.weight else [])], self._places)
        y = np.asarray(table[self.target])
        weights = np.asarray(table[self.weight]).astype(np.float64) if self.weight else np.ones(len(y))
        if reading.classes is None:
            y = y.astype(np.float64)
            if reading.units != Units():
                y = (y - reading.units.offset) / reading.units.scale
        else:
            codes = np.searchsorted(reading.classes, y)
            if (reading.classes[np.minimum(codes, len(reading.classes) - 1)] != y).any():
                raise ValueError(f"{self.folder.path} has other classes in {self.target!r} than before")
            y = codes
            if reading.class_weights is not None:
                weights = weights * reading.class_weights[y]
        return y, weights

    def cells(self, columns: np.ndarray, at: np.ndarray | None = None) -> np.ndarray:
        n = self.n_rows if at is None else len(at)
        found = np.empty((n, len(columns)), dtype=self._reading.dtype, order="F")
        for group, part in self.pieces(at):
            first, end = self._starts[group : group + 2]
            own = self._of_group(group, columns)
            found[part] = own if at is None else own[at[part] - first]
            if at is None:
                assert len(own) == end - first
        return found

    def _of_group(self, group: int, columns: np.ndarray) -> np.ndarray:
        names = [self._reading.names[column] for column in columns.tolist()]
        table = self.folder.read(names, [self._places[group]])
        categories = {name: levels for name, levels in self._reading.categories.items() if name in names}
        return encode(table, categories, names)

    def pieces(self, at: np.ndarray | None = None) -> Iterator[tuple[int, slice]]:
        """Which rows, or which of the given ones, lie in each row group."""
        ends = self._starts if at is None else np.searchsorted(at, self._starts)
        for group in range(len(self._places)):
            if ends[group] < ends[group + 1]:
                yield group, slice(int(ends[group]), int(ends[group + 1]))

    def steps(self, at: np.ndarray, n_rows: int) -> Iterator[slice]:
        """The given rows in pieces, row group by row group."""
        for _, part in self.pieces(at):
            yield part
