"""What the columns and the outputs of a model mean, and rows in the form that it computes with.

Only numpy is needed here: a loaded model needs nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from .costs import shorten

__all__ = ["Schema", "category_code", "is_missing"]


@dataclass(frozen=True, eq=False)
class Schema:
    """What the columns and the outputs mean.

    Attributes
    ----------
    feature_names : list of str
    categories : dict of str to list of str
        For a text or categorical column, its values; the model sees the position of a value in this list.
    may_miss : bool ndarray of shape (n_features,)
        Whether training saw missing values in a column.
    classes : ndarray or None
        The classes in the order of the probabilities; None for regression and ranking.
    """

    feature_names: list[str]
    categories: dict[str, list[str]]
    may_miss: np.ndarray
    classes: np.ndarray | None = None

    def matrix(self, X: Any) -> np.ndarray:
        """Rows as numbers, one column for each feature; of a table, the columns by name and categories by number."""
        if hasattr(X, "columns") and hasattr(X, "__getitem__"):
            found = self._of_table(X)
        else:
            found = _numbers(X, "X")
        n = len(self.feature_names)
        if found.ndim != 2:
            raise ValueError(
                f"X has {found.ndim} dimension(s); give a matrix with a row for each input and {n} columns"
            )
        if found.shape[1] != n:
            raise ValueError(f"X has {found.shape[1]} columns; the model has {n}: {shorten(self.feature_names)}")
        if np.isinf(found).any():
            raise ValueError("X holds an infinite value; values must be finite, or NaN where they are missing")
        return found

    def _of_table(self, X: Any) -> np.ndarray:
        names = [str(name) for name in X.columns]
        own = dict(zip(names, X.columns, strict=True))
        lost = [name for name in self.feature_names if name not in own]
        if lost:
            raise ValueError(f"X has no column {shorten(lost)}; the model has {shorten(self.feature_names)}")
        found = np.empty((len(X), len(self.feature_names)))
        for j, name in enumerate(self.feature_names):
            column = X[own[name]]
            if name in self.categories:
                codes = {value: float(code) for code, value in enumerate(self.categories[name])}
                found[:, j] = [math.nan if is_missing(value) else category_code(codes, value) for value in column]
            else:
                found[:, j] = _numbers(column, f"column {name!r} of X")
        return found


def _numbers(values: Any, what: str) -> np.ndarray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{what} cannot be read as numbers; give numbers, or a table with the model's columns"
        ) from None


def is_missing(value: Any) -> bool:
    """Whether a value of a table stands for none."""
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType"


def category_code(codes: Mapping[str, float], value: Any) -> float:
    """The number of a category; NaN for one that training never saw.

    Tables turn whole numbers into floats as soon as a float stands beside them, so 2.0 is the category "2" if there is
    no "2.0", and the other way round.
    """
    code = codes.get(str(value))
    if code is None and isinstance(value, Real) and math.isfinite(value):
        number = float(value)
        code = codes.get(str(number))
        if code is None and number.is_integer():
            code = codes.get(str(int(number)))
    return math.nan if code is None else code
