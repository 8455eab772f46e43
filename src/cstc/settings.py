"""What goes into training and what comes out, for every method."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .model import FittedTree
from .objective import NodeParameters

__all__ = ["Sample", "Settings", "Trained"]


@dataclass(frozen=True, eq=False)
class Sample:
    """Encoded rows: numbers only, classes as numbers, one weight per row."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    qid: np.ndarray | None = None

    def take(self, at: np.ndarray) -> Sample:
        return Sample(self.X[at], self.y[at], self.weights[at], None if self.qid is None else self.qid[at])

    def units(self) -> tuple[float, float]:
        """Mean and standard deviation of a numeric target (1 for a constant one)."""
        mean = float(np.average(self.y, weights=self.weights))
        return mean, float(np.sqrt(np.average((self.y - mean) ** 2, weights=self.weights))) or 1.0

    def in_units(self, mean: float, scale: float) -> Sample:
        """The same rows with the target measured from `mean` in steps of `scale`."""
        return replace(self, y=(self.y - mean) / scale)


@dataclass(frozen=True)
class Settings:
    """What the estimators pass on; see their documentation."""

    cost_weight: float
    l1_weight: float
    method: str
    depth: int
    max_nodes: int | None
    weak_learners: str
    n_weak_learners: int
    weak_learner_depth: int
    learning_rate: float
    early_stopping: int | None
    cost_strengths: tuple[float, ...]
    cross_fit: int
    solver: str
    max_iter: int
    tol: float
    pruning: bool
    fine_tuning: bool
    dtype: type
    categorical: tuple[int, ...]
    random_state: int
    n_jobs: int | None


@dataclass(frozen=True)
class Trained:
    """A fitted tree, and how it came about."""

    model: FittedTree
    loss_history: list[np.ndarray]
    converged: bool
    reached: np.ndarray  # share of the training rows at each terminal: soft, or out of fold for experts
    solution: NodeParameters | None = None  # of the paper's method: where a fit with another cost weight can start
