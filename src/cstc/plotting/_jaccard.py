"""The Jaccard matrix of the predictive classifiers (paper, figure "jaccard", right)."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length

from ._drawing import INK, plain, pyplot, with_minus
from ._features import predictive_features
from ._flow import checked

__all__ = ["JaccardDisplay"]


class JaccardDisplay:
    """How many features each two predictive classifiers of a tree have in common.

    The Jaccard coefficient of two classifiers is the number of features that both extract over the number that at
    least one does.  Classifiers stand in the order of the average label of the rows that they predict for, highest
    first, so a tree that extracts different features in different regions fades away from the diagonal.

    Parameters
    ----------
    similarity : ndarray of shape (n_classifiers, n_classifiers)
    names : list of str
    labels : list of str or None
        The average label of each classifier's rows.

    Examples
    --------
    >>> import numpy as np
    >>> from cstc.plotting import JaccardDisplay
    >>> features = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 1, 0, 1]], dtype=bool)
    >>> display = JaccardDisplay.from_predictions(features, ["v3", "v4", "v6"])
    >>> np.round(display.similarity[0], 2)
    array([1.  , 0.67, 0.25])
    """

    def __init__(self, *, similarity, names, labels=None):
        self.similarity = similarity
        self.names = names
        self.labels = labels

    @classmethod
    def from_estimator(cls, estimator, X, y, *, ax=None) -> JaccardDisplay:
        """Compare the predictive classifiers of a fitted tree.

        Parameters
        ----------
        estimator : fitted CSTCRegressor, CSTCClassifier of two classes, or CSTCRanker
        X : array-like or table of shape (n, n_features)
        y : array-like of shape (n,)
            Labels, for the order: classifiers that no row reaches are left out.
        ax : matplotlib axes, optional
        """
        model, X = checked(estimator, X)
        if model.n_outputs > 1:
            raise ValueError("JaccardDisplay orders classifiers by their average label: at most two classes")
        y = estimator._check_y(y, reset=False)
        check_consistent_length(X, y)
        node = model.shape.terminal_parents[model.apply(X)]
        reached = np.unique(node)
        averages = np.array([y[node == k].mean() for k in reached])
        order = np.argsort(-averages, kind="stable")
        labels = [with_minus(f"{average:.2f}") for average in averages[order]]
        names = [f"v{k}" for k in reached[order]]
        return cls.from_predictions(predictive_features(model)[reached[order]], names, labels=labels, ax=ax)

    @classmethod
    def from_predictions(cls, features, names, *, labels=None, ax=None) -> JaccardDisplay:
        """Compare classifiers by the features that they extract.

        Parameters
        ----------
        features : bool array-like of shape (n_classifiers, n_features)
        names : sequence of str
        labels : sequence of str, optional
            What to write below each name.
        ax : matplotlib axes, optional
        """
        features = np.asarray(features)
        if features.ndim != 2 or not len(features) or not np.isin(features, (0, 1)).all():
            raise ValueError("features needs a row for each classifier: true where it extracts a feature")
        if len(names) != len(features) or (labels is not None and len(labels) != len(features)):
            raise ValueError(f"features has {len(features)} classifiers; give one name and one label for each")
        labels = None if labels is None else list(labels)
        return cls(similarity=jaccard(features.astype(bool)), names=list(names), labels=labels).plot(ax)

    def plot(self, ax: Any = None) -> JaccardDisplay:
        """Draw the matrix into `ax`, or into a new figure."""
        plt = pyplot()
        n = len(self.names)
        if ax is None:
            size = max(3.2, 1.6 + 0.62 * n)
            _, ax = plt.subplots(figsize=(size + 0.8, size), layout="constrained")
        image = ax.imshow(self.similarity, cmap="Blues", vmin=0.0, vmax=1.0)
        for i in range(n):
            for j in range(n):
                value = self.similarity[i, j]
                ax.text(
                    j, i, f"{value:.2f}", ha="center", va="center", color="white" if value > 0.6 else INK, fontsize=9
                )
        shown = (
            self.names if self.labels is None else [f"{a}\n{b}" for a, b in zip(self.names, self.labels, strict=True)]
        )
        shown = [plain(text) for text in shown]
        ax.set_xticks(range(n), shown)
        ax.set_yticks(range(n), shown)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        if self.labels is not None:
            ax.set_xlabel("classifier, average label of its rows")
        bar = ax.figure.colorbar(image, ax=ax, shrink=0.8, label="Jaccard coefficient")
        bar.outline.set_visible(False)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def jaccard(features: np.ndarray) -> np.ndarray:
    """Common features over features of either; two classifiers without any feature are the same."""
    both = features.astype(float) @ features.T.astype(float)
    sizes = features.sum(axis=1)
    either = sizes[:, None] + sizes[None, :] - both
    return np.where(either > 0, both / np.maximum(either, 1), 1.0)
