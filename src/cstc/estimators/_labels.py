"""Targets and queries: numbers, labels, and the query of each row."""

from __future__ import annotations

import numpy as np
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import (
    check_array,
    column_or_1d,
)

__all__ = ["check_labels", "check_numbers", "check_queries"]


LARGEST = 1e100


def check_numbers(y) -> np.ndarray:
    y = column_or_1d(y, warn=True)
    check_labels(y)
    y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
    largest = float(np.abs(y).max(initial=0.0))
    if largest > LARGEST:
        raise ValueError(f"y holds {largest:g}; the squares of values above {LARGEST:g} overflow: take a larger unit")
    return y


def check_labels(y: np.ndarray) -> None:
    """A label for every row."""
    try:
        if y.dtype == object and any(value is None for value in y):
            raise ValueError("Input y contains None.")
        assert_all_finite(y, input_name="y")
    except ValueError as error:
        raise ValueError(f"{error} Every row needs a label: leave out the rows without one") from None


def check_queries(qid, y, name: str) -> np.ndarray:
    """Query ids as numbers, rows of a query together, at least one query with a relevant document."""
    if qid is None:
        raise ValueError(f"{name} is missing; a ranker needs the query of each row: {name}=...")
    qid = np.asarray(qid)
    if qid.ndim != 1 or len(qid) != len(y):
        raise ValueError(f"{name} has shape {qid.shape}, y has {len(y)} rows; give one query id per row")
    if qid.dtype.kind in "fO" and any(value is None or value != value for value in qid.tolist()):
        raise ValueError(f"{name} holds missing values; give the query of every row")
    starts = np.flatnonzero(np.concatenate([[True], qid[1:] != qid[:-1]]))
    seen, counts = np.unique(qid[starts], return_counts=True)
    if (counts > 1).any():
        query = seen[counts > 1].tolist()[0]
        raise ValueError(f"query {query!r} comes back after other queries; sort the rows by {name}")
    if not (y > 0).any():
        raise ValueError("no query has a relevant document: all grades are 0; at least one must be above 0")
    return np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(qid))))
