"""From margins to what they promise: class probabilities, by the link that a model is saved with.

Only numpy is imported here: a loaded model needs nothing else.
"""

from __future__ import annotations

import numpy as np

__all__ = ["LINKS", "most_likely", "probabilities"]

LINKS = ("identity", "logistic", "softmax")
ONE = (np.array([0]), np.array([1]))  # one row of either class
CLEAR = 1e-9  # a margin above this is above zero as a probability, too, however that is rounded


def probabilities(margins: np.ndarray, link: str) -> np.ndarray:
    """Class probabilities (n, n_classes) from margins of shape (n, n_outputs)."""
    if link == "logistic":
        shifted = np.zeros((len(margins), 2))
        shifted[:, 1] = margins[:, 0]
        shifted -= np.maximum(margins[:, :1], 0.0)
        np.exp(shifted, out=shifted)
        shifted /= shifted[:, :1] + shifted[:, 1:]
        return shifted
    shifted = np.exp(margins - margins.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def most_likely(margins: np.ndarray, link: str) -> np.ndarray:
    """The number of the most likely class of each row: the first of those with the highest probability."""
    if link == "logistic":
        if len(margins) == 1 and not 0 < (only := margins.item(0)) <= CLEAR:
            return ONE[only > 0]
        margin = margins[:, 0]
        clear = margin > CLEAR
        if not ((margin > 0) ^ clear).any():  # no need for exponentials; NaN counts as the first class
            return clear.astype(int)
    return probabilities(margins, link).argmax(axis=1)
