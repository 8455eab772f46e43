"""Cheap features that say which of the expensive ones matters, and say nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..costs import CostModel

__all__ = ["Selectors", "make_selectors"]


@dataclass(frozen=True, eq=False)
class Selectors:
    """What `make_selectors` draws.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_features)
        Selectors, expensive features, then those that say nothing.
    y : ndarray of shape (n_samples,)
    costs : CostModel
        Prices of the features, by their names.
    feature_names : tuple of str
        ``s0``, .. ``z0``, .. ``n0``, ..
    categorical_features : list of int
        The columns that hold categories, for the estimators.
    group : int ndarray of shape (n_samples,)
        Which expensive feature the label is made of.
    optimum : float
        What a row must pay on average to know its label, but for the noise in it.
    """

    X: np.ndarray
    y: np.ndarray
    costs: CostModel
    feature_names: tuple[str, ...]
    categorical_features: list[int]
    group: np.ndarray
    optimum: float


def make_selectors(
    n_samples: int = 3000,
    *,
    levels: Sequence[int] = (2, 2),
    nested: bool = False,
    categories: bool = False,
    n_noise: int = 0,
    noise: float = 0.0,
    prices: tuple[float, float, float] = (1.0, 10.0, 1.0),
    random_state: int | np.random.Generator | None = None,
) -> Selectors:
    """Draw rows of which each needs one expensive feature, and cheap ones say which.

    Every combination of the selectors is a group, and the label of a row is the expensive feature of its group: all of
    them are N(0, 1), so that no selector tells anything of the label by itself, and no expensive feature much.  Whoever
    buys one feature after the other, by what each of them gains, buys them all.

    Parameters
    ----------
    n_samples : int, default=3000
    levels : sequence of int, default=(2, 2)
        How many values each selector has; their product is the number of groups.
    nested : bool, default=False
        Each value of a selector has a next selector of its own, which matters there only.  Else all matter everywhere.
    categories : bool, default=False
        Selectors are categories; else numbers between -1 and 1.
    n_noise : int, default=0
        Columns that say nothing.
    noise : float, default=0.0
        Standard deviation of what is added to the label.
    prices : tuple of 3 floats, default=(1.0, 10.0, 1.0)
        Of a selector, of an expensive feature, of a column that says nothing.
    random_state : int, Generator or None, default=None

    Returns
    -------
    selectors : Selectors

    Examples
    --------
    >>> from cstc.datasets import make_selectors
    >>> data = make_selectors(100, levels=(2, 3), nested=True, random_state=0)
    >>> data.feature_names
    ('s0', 's1', 's2', 'z0', 'z1', 'z2', 'z3', 'z4', 'z5')
    >>> data.optimum
    12.0
    """
    if not len(levels) or any(int(level) != level or level < 2 for level in levels):
        raise ValueError(f"levels is {levels!r}; it must be numbers of values, 2 or more for each selector")
    if n_samples < 1 or n_noise < 0 or noise < 0:
        raise ValueError(
            f"n_samples is {n_samples!r}, n_noise {n_noise!r} and noise {noise!r}; "
            "there must be a row, and neither of the others may be negative"
        )
    if len(prices) != 3:
        raise ValueError(f"prices has {len(prices)} entries; it must be those of a selector, a feature, and noise")
    rng = np.random.default_rng(random_state)
    group, selectors = np.zeros(n_samples, dtype=int), []
    n_above = 1  # groups that the selectors so far tell apart
    for level in levels:
        drawn = rng.integers(level, size=(n_samples, n_above if nested else 1))
        selectors.append(drawn if categories else 2.0 * drawn / (level - 1) - 1.0)
        group = level * group + drawn[np.arange(n_samples), group if nested else 0]
        n_above *= level
    cheap = np.hstack(selectors).astype(float)
    expensive = rng.normal(size=(n_samples, n_above))
    y = expensive[np.arange(n_samples), group] + noise * rng.normal(size=n_samples)
    X = np.hstack([cheap, expensive, rng.normal(size=(n_samples, n_noise))])
    sizes = (cheap.shape[1], n_above, n_noise)
    names = tuple(f"{letter}{k}" for letter, size in zip("szn", sizes, strict=True) for k in range(size))
    costs = CostModel(dict(zip(names, np.repeat(np.asarray(prices, dtype=float), sizes).tolist(), strict=True)))
    return Selectors(
        X=X,
        y=y,
        costs=costs,
        feature_names=names,
        categorical_features=list(range(sizes[0])) if categories else [],
        group=group,
        optimum=float(len(levels) * prices[0] + prices[1]),
    )
