"""Cost-Sensitive Tree of Classifiers: each input buys only the features that its own path needs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .costs import CostModel
    from .estimators import CSTCClassifier, CSTCRanker, CSTCRegressor
    from .experts.method import Experts
    from .frontier import Frontier
    from .interop import from_lightgbm
    from .model.file import ModelFileError, load, save
    from .model.mixture import Mixture
    from .model.queries import QueryTree
    from .model.unseen import UnseenValueWarning
    from .paper.exact import Exact
    from .paper.method import Paper
    from .partitions import predict_partitions

__version__ = "0.1.0"
__all__ = [
    "CSTCClassifier",
    "CSTCRanker",
    "CSTCRegressor",
    "CostModel",
    "Exact",
    "Experts",
    "Frontier",
    "Mixture",
    "ModelFileError",
    "Paper",
    "QueryTree",
    "UnseenValueWarning",
    "__version__",
    "from_lightgbm",
    "load",
    "predict_partitions",
    "save",
]

_HOMES = {
    "CSTCClassifier": "estimators",
    "CSTCRanker": "estimators",
    "CSTCRegressor": "estimators",
    "CostModel": "costs",
    "Exact": "paper.exact",
    "Experts": "experts.method",
    "Frontier": "frontier",
    "Mixture": "model.mixture",
    "ModelFileError": "model.file",
    "Paper": "paper.method",
    "QueryTree": "model.queries",
    "UnseenValueWarning": "model.unseen",
    "_explain_row": "serving.explain",
    "_importance_in_mixture": "serving.explain",
    "_item_importance": "serving.explain",
    "_within_budget": "serving.table",
    "from_lightgbm": "interop",
    "load": "model.file",
    "predict_partitions": "partitions",
    "save": "model.file",
}


def __getattr__(name: str) -> Any:
    # names are imported when first used: whoever only loads a model does not wait for scikit-learn and LightGBM
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name.removeprefix("_"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
