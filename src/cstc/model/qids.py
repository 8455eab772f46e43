"""Which rows belong to one query: the one rule for query ids, in training and in answers.

Only numpy is imported here: a loaded model needs nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["query_numbers"]


def query_numbers(qid: Any, n: int, name: str = "qid", *, rows_of: str = "X") -> np.ndarray:
    """Query ids of `n` rows as numbers from 0 on, in their order; the rows of a query must stand together."""
    # in a list of numbers and text, numpy would take the numbers, and what is missing, for text
    qid = np.asarray(qid, dtype=object) if isinstance(qid, list | tuple) else np.asarray(qid)
    if qid.ndim != 1 or len(qid) != n:
        raise ValueError(f"{name} has shape {qid.shape}, {rows_of} has {n} rows; give one query id per row")
    if any(map(_is_missing, qid.tolist())) if qid.dtype.kind == "O" else (qid != qid).any():
        raise ValueError(f"{name} holds missing values; give the query of every row")
    try:
        starts = np.flatnonzero(np.concatenate([[True], qid[1:] != qid[:-1]])) if n else np.zeros(0, dtype=int)
        seen, counts = np.unique(qid[starts], return_counts=True)
    except (TypeError, ValueError):  # numbers and text have no order, nor have many other things
        kinds = " and ".join(sorted({type(value).__name__ for value in qid.tolist()}))
        raise ValueError(f"{name} holds values of type {kinds}; give all ids as text, or all as numbers") from None
    if (counts > 1).any():
        query = seen[counts > 1].tolist()[0]
        raise ValueError(f"query {query!r} comes back after other queries; sort the rows by {name}")
    return np.repeat(np.arange(len(starts)), np.diff(np.append(starts, n)))


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or pandas.NA, which is neither equal to itself nor not."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # of pandas.NA, and of arrays, which are no ids
        return type(value).__name__ == "NAType"
