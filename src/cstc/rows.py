"""Rows: the one container of inputs and targets, the units of the targets, folds, and rows that are held out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.model_selection import GroupShuffleSplit, train_test_split

from .losses import Loss
from .matrix import columns_at
from .model.qids import query_numbers
from .tables import take_rows

__all__ = ["Parts", "Rows", "Units", "check_queries", "folds_of", "hold_out", "part", "some_of"]


@dataclass(frozen=True, eq=False)
class Rows:
    """Inputs, targets, weights and queries.

    Attributes
    ----------
    X : ndarray or sparse matrix of shape (n, n_features)
        Numbers only, categories as codes (`matrix`); or a table, while rows are still as the user gave them.
    y : ndarray of shape (n,)
        Values, grades, or numbers of classes.
    weights : ndarray of shape (n,) or None
    qid : ndarray of shape (n,) or None
        The query of each row, where rows are ranked.
    part : cstc.cluster.Part or None
        Where workers find the same rows, if there are any.
    more : cstc.cluster.Samples or None
        Further rows, which teach and are not in memory; those that are here judge.
    """

    X: Any
    y: Any
    weights: Any = None
    qid: Any = None
    part: Any = None
    more: Any = None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, at: np.ndarray) -> Rows:
        """The rows of the given numbers."""
        y, weights, qid = (None if each is None else np.asarray(each)[at] for each in (self.y, self.weights, self.qid))
        part = None if self.part is None else self.part.take(at)
        return Rows(take_rows(self.X, at), y, weights, qid, part, self.more)

    def on(self, columns: np.ndarray) -> Rows:
        """The same rows with some of their columns."""
        return self if len(columns) == self.X.shape[1] else replace(self, X=columns_at(self.X, columns))


@dataclass(frozen=True)
class Units:
    """Units of a target: its mean and its standard deviation.

    Values are learned from in standard deviations from their mean, so that floors and tolerances mean the same for
    every data set, and since LightGBM keeps targets in single precision, where a large offset would swallow them.
    Squared risk and with it cost weights then are in squared units.  Classes have no units.
    """

    offset: float = 0.0
    scale: float = 1.0

    @classmethod
    def of(cls, rows: Rows, loss: Loss) -> Units:
        if loss.has_classes:
            return cls()
        if np.ptp(rows.y) == 0:  # of equal values, the mean and the deviation would be rounded
            return cls(float(rows.y[0]), 1.0)
        mean = float(np.average(rows.y, weights=rows.weights))
        return cls(mean, float(np.sqrt(np.average((rows.y - mean) ** 2, weights=rows.weights))) or 1.0)

    def standard(self, rows: Rows) -> Rows:
        """The same rows with targets in these units."""
        return rows if self == Units() else replace(rows, y=(rows.y - self.offset) / self.scale)

    def margins(self, margins: np.ndarray) -> np.ndarray:
        """Standard margins in the units of the user."""
        return margins * self.scale + self.offset

    def risk(self, risk: Any) -> Any:
        """Standard risk in the units of the user."""
        return risk * self.scale**2

    def standard_weight(self, weight: float) -> float:
        """A cost weight (risk for one unit of cost) for standard targets: it leaves the minimiser unchanged."""
        return weight / self.scale**2


def folds_of(rows: Rows, n_folds: int, random_state: int, *, by_class: bool = False) -> np.ndarray:
    """A fold for each row; whole queries, or an even share of each class."""
    rng = np.random.default_rng(random_state)
    if rows.qid is not None:
        _, query = np.unique(rows.qid, return_inverse=True)
        return rng.permutation(np.arange(query.max() + 1) % n_folds)[query]
    if not by_class:
        return rng.permutation(np.arange(len(rows)) % n_folds)
    folds = np.empty(len(rows), dtype=int)
    folds[np.lexsort((rng.random(len(rows)), rows.y))] = np.arange(len(rows)) % n_folds
    return folds


def some_of(at: np.ndarray, most: int) -> np.ndarray:
    """At most so many of some rows, drawn at random (always the same ones), in their order."""
    if len(at) <= most:
        return at
    return at[np.sort(np.random.default_rng(most).choice(len(at), most, replace=False))]


def hold_out(rows: Rows, fraction: float, random_state: int, *, by_class: bool = False) -> np.ndarray:
    """Bool (n,): the rows that judge; whole queries, or a share of each class that is large enough for both sides."""
    held_out = np.zeros(len(rows), dtype=bool)
    if rows.qid is not None:
        if len(np.unique(rows.qid)) < 2:
            raise ValueError("qid holds one query; at least 2 are needed to hold one out for validation")
        splitter = GroupShuffleSplit(n_splits=1, test_size=fraction, random_state=random_state)
        held_out[next(splitter.split(rows.X, groups=rows.qid))[1]] = True
        return held_out
    strata = None
    if by_class:
        counts, n_held = np.bincount(rows.y), int(np.ceil(fraction * len(rows)))
        if counts.min() >= 2 and min(n_held, len(rows) - n_held) >= len(counts):
            strata = rows.y
    at = train_test_split(np.arange(len(rows)), test_size=fraction, random_state=random_state, stratify=strata)[1]
    held_out[at] = True
    return held_out


@dataclass(frozen=True, eq=False)
class Parts:
    """Rows that teach and rows that judge, with targets in standard units.

    Attributes
    ----------
    everything : Rows
        All training rows; `train` is what is left of them if the rows that judge were held out.
    train, validation : Rows
    units : Units
        Of the target, by all training rows.
    """

    everything: Rows
    train: Rows
    validation: Rows
    units: Units

    @property
    def were_held_out(self) -> bool:
        """Whether the rows that judge are training rows."""
        return self.train is not self.everything


def part(rows: Rows, validation: Rows | None, loss: Loss, fraction: float, random_state: int) -> Parts:
    """Hold rows out to judge by, where none are given."""
    units = Units.of(rows, loss)
    everything = units.standard(rows)
    if validation is not None:
        return Parts(everything, everything, units.standard(validation), units)
    judges = hold_out(everything, fraction, random_state, by_class=loss.has_classes)
    return Parts(everything, everything.take(~judges), everything.take(judges), units)


def check_queries(qid, y, name: str) -> np.ndarray:
    """Query ids as numbers, rows of a query together, at least one query with a relevant document."""
    if qid is None:
        raise ValueError(f"{name} is missing; a ranker needs the query of each row: {name}=...")
    query = query_numbers(qid, len(y), name, rows_of="y")
    if not (y > 0).any():
        raise ValueError("no query has a relevant document: all grades are 0; at least one must be above 0")
    return query
