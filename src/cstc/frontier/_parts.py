"""Rows that teach and rows that choose, as the user gave them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight

from ..rows import Rows, hold_out

__all__ = ["part_rows", "with_checked_weights"]


def with_checked_weights(given: Rows, X: np.ndarray) -> Rows:
    """Rows as the user gave them, with weights as numbers; `X` are the same rows, encoded."""
    if given.weights is None:
        return given
    weights = _check_sample_weight(given.weights, X, dtype=np.float64, ensure_non_negative=True)
    return replace(given, weights=weights)


def part_rows(
    checker: Any, rows: Rows, given: Rows, fraction: float, seed: int, *, needs_classes: bool
) -> tuple[Rows, Rows]:
    """Rows that teach and rows that choose, where the caller gave none of the second kind.

    `rows` are the checked ones, `given` the same as the user gave them.
    """
    has_classes = hasattr(checker, "classes_")
    held_out = hold_out(rows, fraction, seed, by_class=has_classes)
    if has_classes:
        counted = np.ones(len(rows), dtype=bool) if given.weights is None else given.weights > 0
        _check_held_out_classes(rows.y, held_out, counted, checker.classes_, needs_classes)
    return given.take(np.flatnonzero(~held_out)), given.take(np.flatnonzero(held_out))


def _check_held_out_classes(
    y: np.ndarray, held_out: np.ndarray, counted: np.ndarray, classes: np.ndarray, needs_classes: bool
) -> None:
    """Rare classes may all land on one side; the caller, who held nothing out, could not know why a fit fails."""
    advice = f"give X_val and y_val with {'both' if len(classes) == 2 else 'all'} classes, or more rows of the rare one"
    missing = np.setdiff1d(y, y[~held_out])
    if len(missing):
        raise ValueError(
            f"no row of class {classes[missing].tolist()[0]!r} is left to learn from: the frontier held out "
            f"{held_out.sum()} of the {len(y)} rows itself, to choose by, and all rows of this class are among them; "
            f"{advice}"
        )
    present = np.unique(y[held_out & counted])
    if needs_classes and len(present) < 2:
        raise ValueError(
            f"the validation rows hold one class, {classes[present].tolist()}, and AUC needs two: the frontier held "
            f"out {held_out.sum()} of the {len(y)} rows itself, to choose by; {advice}"
        )
