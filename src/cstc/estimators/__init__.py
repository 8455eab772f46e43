"""CSTCRegressor, CSTCClassifier and CSTCRanker: validate, train, hand over to the fitted model."""

from ._classifier import CSTCClassifier
from ._ranker import CSTCRanker
from ._regressor import CSTCRegressor

__all__ = ["CSTCClassifier", "CSTCRanker", "CSTCRegressor"]
