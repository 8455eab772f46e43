"""Which features the classifiers of a fitted tree extract."""

from __future__ import annotations

import numpy as np

from ..model import FittedTree

__all__ = ["gate_features", "predictive_features"]


def predictive_features(model: FittedTree) -> np.ndarray:
    """Bool (n_nodes, n_features): the features of the learners that each node predicts with; none where it does not."""
    uses = model.learner_features
    found = (model.predict_learners.astype(int) @ uses.astype(int)) > 0
    found[~model.shape.is_predictive] = False
    return found


def gate_features(model: FittedTree) -> np.ndarray:
    """Bool (n_nodes, n_features): the features of the learners that each node routes with; none at leaf classifiers."""
    return (model.route_learners.astype(int) @ model.learner_features.astype(int)) > 0
