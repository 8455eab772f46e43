"""Tables in, matrix out: pandas, polars and whatever else narwhals reads, with categories as numbers.

The fitted model works on float64 columns.  A categorical column is replaced by the position of its value in
the categories seen in training; a value never seen becomes NaN, which trees treat as missing.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.exceptions import DuplicateError

from .schema import category_code, is_missing

__all__ = ["categories_of", "encode", "is_frame"]


def is_frame(X: Any) -> bool:
    """Whether X is a table with columns of their own types."""
    if nw.dependencies.is_polars_lazyframe(X):
        raise TypeError("X is a LazyFrame, which holds no rows yet; give X.collect()")
    return nw.dependencies.is_into_dataframe(X)


def categories_of(X: Any) -> dict[str, list]:
    """The categories of every text or categorical column of a table, in sorted order."""
    found: dict[str, list] = {}
    if not is_frame(X):
        return found
    for name, column in _columns(X):
        if column.dtype not in (nw.Categorical, nw.Enum, nw.String, nw.Object):
            continue
        values = [value for value in column.to_list() if not is_missing(value)]
        if column.dtype == nw.Object and all(isinstance(value, Real) for value in values):
            continue  # numbers in a column of no type
        found[name] = sorted({str(value) for value in values})
    return found


def encode(X: Any, categories: dict[str, list]) -> Any:
    """A float matrix of a table; anything that is no table is returned as it is."""
    if not is_frame(X):
        return X
    columns = _columns(X)
    matrix = np.empty((len(X), len(columns)))
    for j, (name, column) in enumerate(columns):
        if name in categories:
            code = {value: float(k) for k, value in enumerate(categories[name])}
            matrix[:, j] = [np.nan if is_missing(v) else category_code(code, v) for v in column.to_list()]
            continue
        try:
            matrix[:, j] = _numbers(column)
        except Exception as error:
            raise ValueError(
                f"column {name!r} of X holds {column.dtype}, which is not a number; "
                "give numbers, or text or categories already in fit"
            ) from error
    return matrix


def _columns(X: Any) -> list[tuple[str, nw.Series]]:
    """The columns, by the names that the model has for them: x0, x1, ... where a table's own are no text."""
    try:
        frame = nw.from_native(X, eager_only=True)
        names = [str(name) for name in frame.columns]
    except DuplicateError as error:
        raise ValueError(f"columns of X have the same name; give each its own. {error}") from None
    if not all(isinstance(name, str) for name in frame.columns):
        names = [f"x{j}" for j in range(len(names))]
    return list(zip(names, frame.iter_columns(), strict=True))


def _numbers(column: nw.Series) -> np.ndarray:
    if not (column.dtype.is_numeric() or column.dtype in (nw.Boolean, nw.Object) or column.is_null().all()):
        raise TypeError("not a number")  # a date would become one without a word
    return column.cast(nw.Float64).to_numpy()
