"""Tables in, matrix out: pandas, polars and whatever else narwhals reads, with categories as numbers.

The fitted model works on float64 columns.  A categorical column is replaced by the position of its value in
the categories seen in training; a value never seen becomes NaN, which trees treat as missing.
"""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

__all__ = ["categories_of", "encode", "is_frame"]


def is_frame(X: Any) -> bool:
    """Whether X is a table with columns of their own types."""
    return nw.dependencies.is_into_dataframe(X)


def categories_of(X: Any) -> dict[str, list]:
    """The categories of every text or categorical column of a table, in sorted order."""
    found: dict[str, list] = {}
    if not is_frame(X):
        return found
    frame = nw.from_native(X, eager_only=True)
    for name in frame.columns:
        column = frame[name]
        if column.dtype in (nw.Categorical, nw.Enum, nw.String, nw.Object):
            found[name] = sorted({str(value) for value in column.to_list() if not _is_missing(value)})
    return found


def encode(X: Any, categories: dict[str, list]) -> Any:
    """A float matrix of a table; anything that is no table is returned as it is."""
    if not is_frame(X):
        return X
    frame = nw.from_native(X, eager_only=True)
    matrix = np.empty((len(frame), len(frame.columns)))
    for j, name in enumerate(frame.columns):
        column = frame[name]
        if name in categories:
            code = {value: float(k) for k, value in enumerate(categories[name])}
            matrix[:, j] = [np.nan if _is_missing(v) else code.get(str(v), np.nan) for v in column.to_list()]
            continue
        try:
            matrix[:, j] = column.cast(nw.Float64).to_numpy()
        except Exception as error:
            raise ValueError(
                f"column {name!r} of X holds {column.dtype}, which is not a number; "
                "give numbers, or text or categories already in fit"
            ) from error
    return matrix


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value)) or type(value).__name__ == "NAType"
