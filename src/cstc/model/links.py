"""From margins to what they promise: class probabilities, by the link that a model is saved with.

Only numpy is imported here: a loaded model needs nothing else.
"""

from __future__ import annotations

import numpy as np

__all__ = ["LINKS", "probabilities"]

LINKS = ("identity", "logistic", "softmax")


def probabilities(margins: np.ndarray, link: str) -> np.ndarray:
    """Class probabilities (n, n_classes) from margins of shape (n, n_outputs)."""
    if link == "logistic":
        margins = np.column_stack([np.zeros(len(margins)), margins[:, 0]])
    shifted = np.exp(margins - margins.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)
