"""Values of a kind that training did not see: the one rule for them, wherever rows come from.

A missing value in a column that had none in training, and a category that is new, are taken as missing, with one
warning: `predict` of estimators and of loaded models warns once for a call, a session or a predictor once for a column.
In strict mode they are faults.  A plain input (``weak_learners="identity"``) has nothing to compute with where it is
missing, so there it is always a fault.

What is said names the column and never the value: it goes into logs.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable

from ..costs import shorten

__all__ = ["OnceEach", "UnseenValueWarning", "missing", "plain_missing", "unknown", "warn_of"]

MOST = 8  # columns that a warning names
_PACKAGE = __name__.partition(".")[0]


class UnseenValueWarning(UserWarning):
    """A value of a kind that training did not see was taken as missing.

    ``warnings.simplefilter("error", cstc.UnseenValueWarning)`` makes an error of it.

    Examples
    --------
    >>> import cstc, numpy as np, warnings
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = cstc.CSTCRegressor(n_weak_learners=5, random_state=0).fit(X, X[:, 0])
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = model.predict([[np.nan, 0.0, 0.0]])
    >>> print(caught[0].message)
    taken as missing: x0 is missing, and training saw no missing values in it
    """


def missing(name: str) -> str:
    """What is said of a missing value in a column that had none in training."""
    return f"{name} is missing, and training saw no missing values in it"


def unknown(name: str) -> str:
    """What is said of a category that is new."""
    return f"{name} holds a category that training did not see"


def plain_missing(names: Iterable[str]) -> str:
    """What is said of a missing value that cannot be taken as one."""
    return f"{shorten(names)} is missing, where training saw no missing values and the model needs the number itself"


def warn_of(reasons: Iterable[str]) -> None:
    """One warning for all of them, at the line outside of this library that led here."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    found = list(reasons)
    more = f"; and {len(found) - MOST} columns more" if len(found) > MOST else ""
    warnings.warn(f"taken as missing: {'; '.join(found[:MOST])}{more}", UnseenValueWarning, stacklevel=level)


class OnceEach:
    """Says what is to be said of values that training did not see, each thing once for all rows.

    Attributes
    ----------
    say : callable
        Takes a list of what was not said yet: a warning, unless somebody keeps a log instead.
    """

    def __init__(self) -> None:
        self.say: Callable[[list[str]], None] = warn_of
        self._said: set[str] = set()

    def __call__(self, reasons: Iterable[str]) -> None:
        new = [reason for reason in dict.fromkeys(reasons) if reason not in self._said]
        if new:
            self._said.update(new)
            self.say(new)
