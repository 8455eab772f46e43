"""The risks of a node: squared, logistic and softmax, each with its derivative.

A loss sees margins of shape (n, n_outputs) and encoded targets; it returns one value per row and the
derivative with respect to the margins.  Squared risk is ``(a - y)^2`` without the half, as in the paper.
`mean` turns margins into what they promise (a value, or class probabilities), and `expected` is the risk, up to
a term that is the same for all margins, if that promise of another model were true.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, log_softmax, softmax

__all__ = ["LogisticLoss", "SoftmaxLoss", "SquaredLoss"]


class SquaredLoss:
    """``l(a, y) = (a - y)^2``."""

    name = "squared"
    n_outputs = 1
    curvature = 2.0  # an upper bound of the second derivative: the unit of the prior

    def value_and_derivative(self, margins: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residual = margins[:, 0] - y
        return residual**2, 2.0 * residual[:, None]

    def mean(self, margins: np.ndarray) -> np.ndarray:
        return margins[:, 0]

    def expected(self, margins: np.ndarray, mean: np.ndarray) -> np.ndarray:
        return (margins[:, 0] - mean) ** 2

    def constant(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Margins of the best constant prediction."""
        return np.array([np.average(y, weights=weights)])


class LogisticLoss:
    """``l(a, y) = log(1 + exp(-a))`` for y = 1 and ``log(1 + exp(a))`` for y = 0."""

    name = "logistic"
    n_outputs = 1
    curvature = 0.25

    def value_and_derivative(self, margins: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        margin = margins[:, 0]
        return np.logaddexp(0.0, margin) - y * margin, (expit(margin) - y)[:, None]

    def mean(self, margins: np.ndarray) -> np.ndarray:
        return expit(margins[:, 0])

    def expected(self, margins: np.ndarray, mean: np.ndarray) -> np.ndarray:
        return np.logaddexp(0.0, margins[:, 0]) - mean * margins[:, 0]

    def constant(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        share = np.clip(np.average(y, weights=weights), 1e-6, 1 - 1e-6)
        return np.array([np.log(share / (1 - share))])


class SoftmaxLoss:
    """``l(a, y) = -log softmax(a)[y]`` with one margin per class; y holds class numbers."""

    name = "softmax"
    curvature = 0.5

    def __init__(self, n_outputs: int):
        self.n_outputs = n_outputs

    def value_and_derivative(self, margins: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logs = log_softmax(margins, axis=1)
        rows = np.arange(len(y))
        derivative = np.exp(logs)
        derivative[rows, y] -= 1.0
        return -logs[rows, y], derivative

    def mean(self, margins: np.ndarray) -> np.ndarray:
        return softmax(margins, axis=1)

    def expected(self, margins: np.ndarray, mean: np.ndarray) -> np.ndarray:
        return -(mean * log_softmax(margins, axis=1)).sum(axis=1)

    def constant(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        share = np.bincount(y, weights=weights, minlength=self.n_outputs) / weights.sum()
        logs = np.log(np.clip(share, 1e-6, None))
        return logs - logs.mean()
