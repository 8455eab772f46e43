"""The risks of a node: squared, logistic and softmax, and errors in money.  A new one is a class here and its tests.

A loss sees margins of shape (n, n_outputs) and encoded targets.  It owns all that depends on what is risked:

- its value at each row and the derivative with respect to the margins;
- its link, from margins to what they promise: a value, or class probabilities;
- what it is in expectation, if the promise of another model were true;
- how it is boosted: LightGBM's name of it, and LightGBM's gain for one unit of risk.

Squared risk is ``(a - y)^2`` without the half, as in the paper.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax

from .model import Decisions, probabilities

__all__ = ["ErrorLoss", "LogisticLoss", "Loss", "SoftmaxLoss", "SquaredLoss", "stakes_of"]


class Loss:
    """What every loss has.

    Attributes
    ----------
    name : str
    n_outputs : int
        Margins of one row.
    link : str
        One of `cstc.model.LINKS`.
    has_classes : bool
        Whether targets are numbers of classes; else they are values, which have units.
    curvature : float
        An upper bound of the second derivative: the unit of a prior.
    objective : str
        What LightGBM calls it.
    gain_unit : float
        LightGBM's gain for a drop of the summed risk by 1.
    """

    name: str
    n_outputs: int
    link: str
    has_classes: bool
    curvature: float
    objective: str
    gain_unit: float

    def value_and_derivative(self, margins: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shapes (n,) and (n, n_outputs)."""
        raise NotImplementedError

    def value(self, margins: np.ndarray, y: np.ndarray) -> np.ndarray:
        """At each row, shape (n,)."""
        return self.value_and_derivative(margins, y)[0]

    def mean(self, margins: np.ndarray) -> np.ndarray:
        """What margins promise: values (n,), the share of class 1 (n,), or shares of all classes (n, n_classes)."""
        raise NotImplementedError

    def expected(self, margins: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """The risk of margins if `mean` were the truth, up to a term that is the same for all margins."""
        raise NotImplementedError

    def constant(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Margins (n_outputs,) of the best constant prediction."""
        raise NotImplementedError

    def risk(self, margins: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> float:
        """The mean over rows, as it was observed."""
        return float(np.average(self.value(margins, y), weights=weights))


class SquaredLoss(Loss):
    """``l(a, y) = (a - y)^2``."""

    name = "squared"
    n_outputs = 1
    link = "identity"
    has_classes = False
    curvature = 2.0
    objective = "regression"
    gain_unit = 1.0  # the drop of the sum of squares itself

    def value_and_derivative(self, margins: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residual = margins[:, 0] - y
        return residual**2, 2.0 * residual[:, None]

    def mean(self, margins: np.ndarray) -> np.ndarray:
        return margins[:, 0]

    def expected(self, margins: np.ndarray, mean: np.ndarray) -> np.ndarray:
        return (margins[:, 0] - mean) ** 2

    def constant(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.array([np.average(y, weights=weights)])


class LogisticLoss(Loss):
    """``l(a, y) = log(1 + exp(-a))`` for y = 1 and ``log(1 + exp(a))`` for y = 0."""

    name = "logistic"
    n_outputs = 1
    link = "logistic"
    has_classes = True
    curvature = 0.25
    objective = "binary"
    gain_unit = 2.0  # twice the drop of the log loss

    def value_and_derivative(self, margins: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        margin = margins[:, 0]
        return np.logaddexp(0.0, margin) - y * margin, (self.mean(margins) - y)[:, None]

    def mean(self, margins: np.ndarray) -> np.ndarray:
        return probabilities(margins, self.link)[:, 1]

    def expected(self, margins: np.ndarray, mean: np.ndarray) -> np.ndarray:
        return np.logaddexp(0.0, margins[:, 0]) - mean * margins[:, 0]

    def constant(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        share = np.clip(np.average(y, weights=weights), 1e-6, 1 - 1e-6)
        return np.array([np.log(share / (1 - share))])


class SoftmaxLoss(Loss):
    """``l(a, y) = -log softmax(a)[y]`` with one margin per class; y holds class numbers."""

    name = "softmax"
    link = "softmax"
    has_classes = True
    curvature = 0.5
    objective = "multiclass"
    gain_unit = 2.0

    def __init__(self, n_outputs: int):
        self.n_outputs = n_outputs

    def value_and_derivative(self, margins: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logs = log_softmax(margins, axis=1)
        rows = np.arange(len(y))
        derivative = np.exp(logs)
        derivative[rows, y] -= 1.0
        return -logs[rows, y], derivative

    def mean(self, margins: np.ndarray) -> np.ndarray:
        return probabilities(margins, self.link)

    def expected(self, margins: np.ndarray, mean: np.ndarray) -> np.ndarray:
        return -(mean * log_softmax(margins, axis=1)).sum(axis=1)

    def constant(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        share = np.bincount(y, weights=weights, minlength=self.n_outputs) / weights.sum()
        logs = np.log(np.clip(share, 1e-6, None))
        return logs - logs.mean()


def stakes_of(loss: Loss, decisions: Decisions | None) -> Loss:
    """What is weighed against cost: the loss that is boosted, or what errors cost where they have prices."""
    return loss if decisions is None else ErrorLoss(loss, decisions)


class ErrorLoss(Loss):
    """What the decision costs that margins lead to: ``l(a, y) = E[y, d]`` with ``d`` of least expected cost.

    It is weighed and never descended: it has steps and no derivative.  Trees are boosted with `boosted`, whose margins
    it takes.
    """

    name = "errors in money"
    has_classes = True

    def __init__(self, boosted: Loss, decisions: Decisions):
        self.boosted, self.decisions = boosted, decisions
        self.n_outputs, self.link = boosted.n_outputs, boosted.link

    def value(self, margins: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self.decisions.observed(y, self.mean(margins))

    def mean(self, margins: np.ndarray) -> np.ndarray:
        return probabilities(margins, self.link)

    def expected(self, margins: np.ndarray, mean: np.ndarray) -> np.ndarray:
        taken = self.decisions.taken(self.mean(margins))
        return (mean * self.decisions.costs.T[taken]).sum(axis=1)
