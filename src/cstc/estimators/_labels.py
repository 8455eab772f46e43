"""Targets: numbers and labels."""

from __future__ import annotations

import numpy as np
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import (
    check_array,
    column_or_1d,
)

__all__ = ["check_labels", "check_numbers"]


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
