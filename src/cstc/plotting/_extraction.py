"""The share of the features of each price that is extracted by depth (paper, figure "features")."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._drawing import MARKERS, as_number, pyplot, quiet
from ._features import gate_features, predictive_features
from ._flow import checked

__all__ = ["ExtractionDisplay"]


class ExtractionDisplay:
    """Of the features of each price, the share that the classifiers down to each depth of a tree extract.

    Parameters
    ----------
    shares : ndarray of shape (n_depths, n_prices)
        Row d: extracted by a classifier at depth d or above.
    prices : ndarray of shape (n_prices,)
    counts : ndarray of shape (n_prices,)
        Number of features at each price.

    Examples
    --------
    >>> from cstc.plotting import ExtractionDisplay
    >>> display = ExtractionDisplay.from_predictions([[0.9, 0.1], [1.0, 0.3], [1.0, 0.6]], [1, 20], [10, 40])
    """

    def __init__(self, *, shares, prices, counts):
        self.shares = shares
        self.prices = prices
        self.counts = counts

    @classmethod
    def from_estimator(cls, estimator, X, *, ax=None) -> ExtractionDisplay:
        """Count what the nodes of a fitted tree extract.

        Parameters
        ----------
        estimator : fitted CSTCRegressor, CSTCClassifier or CSTCRanker
        X : array-like or table of shape (n, n_features)
            Rows that go down the tree: nodes that none reaches extract nothing.
        ax : matplotlib axes, optional
        """
        model, X = checked(estimator, X)
        reached = model.shape.paths[np.unique(model.apply(X))].any(axis=0)
        used = (predictive_features(model) | gate_features(model)) & reached[:, None]
        prices, group = np.unique(model.costs.feature_prices, return_inverse=True)
        depths = model.shape.depths
        extracted = np.array([used[depths <= depth].any(axis=0) for depth in range(int(depths[reached].max()) + 1)])
        counts = np.bincount(group)
        shares = np.array([np.bincount(group, weights=row) / counts for row in extracted])
        return cls.from_predictions(shares, prices, counts, ax=ax)

    @classmethod
    def from_predictions(cls, shares, prices, counts, *, ax=None) -> ExtractionDisplay:
        """Draw measured shares.

        Parameters
        ----------
        shares : array-like of shape (n_depths, n_prices)
            Between 0 and 1.
        prices, counts : array-like of shape (n_prices,)
            The prices, and how many features have each.
        ax : matplotlib axes, optional
        """
        shares, prices, counts = np.atleast_2d(np.asarray(shares, float)), np.asarray(prices, float), np.asarray(counts)
        if shares.ndim != 2 or not shares.shape[1] == len(prices) == len(counts):
            raise ValueError(
                f"shares has shape {shares.shape}, with {len(prices)} prices and {len(counts)} counts; there must be "
                "a column for each price, a row for each depth"
            )
        if not ((shares >= 0) & (shares <= 1)).all():
            raise ValueError("shares must be between 0 and 1")
        return cls(shares=shares, prices=prices, counts=counts).plot(ax)

    def plot(self, ax: Any = None) -> ExtractionDisplay:
        """Draw one line for each price into `ax`, or into a new figure."""
        plt = pyplot()
        from matplotlib import colormaps

        if ax is None:
            _, ax = plt.subplots(figsize=(5.4, 3.6), layout="constrained")
        depth = np.arange(1, len(self.shares) + 1)
        for number, (price, count, share) in enumerate(zip(self.prices, self.counts, self.shares.T, strict=True)):
            colour = colormaps["viridis"](0.92 * number / max(len(self.prices) - 1, 1))
            style = {"marker": MARKERS[number % len(MARKERS)], "ms": 5, "lw": 1.8, "color": colour}
            ax.plot(depth, share, label=f"{as_number(price)}  ({count})", clip_on=False, zorder=3, **style)
        ax.set(xlabel="depth of the tree", ylabel="share of features extracted", ylim=(0, 1), xticks=depth)
        quiet(ax)
        ax.grid(color="#e6e9ed", lw=0.8, zorder=0)
        beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}  # lines may run anywhere in the axes
        ax.legend(title="price  (features)", frameon=False, fontsize=8, title_fontsize=8, **beside)
        self.ax_, self.figure_ = ax, ax.figure
        return self
