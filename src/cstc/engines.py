"""Which library grows ensembles: LightGBM (`lightgbm_engine`) or XGBoost (`xgboost_engine`), as a `Boosting` says.

Experts, gates and the paper's weak learners ask here and know neither.  What prices need is LightGBM's alone, and is
asked of its engine itself.  An ensemble in the making is a booster of LightGBM, or has what is asked of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .binning import ColumnBlocks
from .boosting import Boosting
from .lightgbm_engine import Binned, GainRegression, bin_blocks, boost
from .matrix import is_sparse
from .on_device import DEVICES, check_cuda, load_xgboost
from .rows import Rows
from .xgboost_engine import Matrix, XGBinned, XGRegression, grow_by_xgboost

__all__ = ["ENGINES", "Shared", "bin_for_all", "bin_for_one", "check_engine", "engine_on", "grow", "regression"]

ENGINES = ("lightgbm", "xgboost")

#: What the ensembles on different columns share.
Shared = ColumnBlocks | Matrix


def engine_on(device: str, asked: str | None = None) -> str:
    """The engine for a device, where the user asks for one or leaves it open."""
    if device == "cuda" and asked == "lightgbm":
        raise ValueError(
            "device is 'cuda' and engine is 'lightgbm', which comes without CUDA; take engine='xgboost', or None"
        )
    return asked or ("xgboost" if device == "cuda" else "lightgbm")


def check_engine(boosting: Boosting, X: Any) -> None:
    """Whatever keeps an engine from growing anything, before anything is grown."""
    assert boosting.device in DEVICES
    if boosting.engine != "xgboost":
        return
    load_xgboost("engine='xgboost'")
    if boosting.device == "cuda":
        check_cuda()
    if is_sparse(X):
        raise ValueError(
            "X is a sparse matrix, and XGBoost would take what it does not hold as missing, not as zero; give "
            "X.toarray(), or grow with engine='lightgbm' and device='cpu'"
        )
    if boosting.workers is not None:
        raise ValueError(
            "executor= gives ensembles to workers, which grow them with LightGBM; leave it out, or take "
            "engine='lightgbm' and device='cpu'"
        )


def bin_for_all(
    boosting: Boosting, rows: Rows, sets: Sequence[np.ndarray], *, ahead: bool = True
) -> Shared | None:
    """What ensembles on some sets of columns share, if anything."""
    if boosting.engine == "xgboost":
        return Matrix.of(boosting, rows)
    return bin_blocks(boosting, rows, sets, ahead=ahead)


def bin_for_one(boosting: Boosting, rows: Rows, columns: np.ndarray, shared: Any) -> Binned | XGBinned:
    """Some columns, to grow ensembles on that lack parts of the rows."""
    return (XGBinned if boosting.engine == "xgboost" else Binned)(boosting, rows, columns, shared)


def regression(
    boosting: Boosting, rows: Rows, at: np.ndarray, columns: np.ndarray, shared: Any
) -> GainRegression | XGRegression:
    """What learns gates from some columns of some rows."""
    return (XGRegression if boosting.engine == "xgboost" else GainRegression)(boosting, rows, at, columns, shared)


def grow(boosting: Boosting, rows: Rows, validation: Rows | None = None) -> Any:
    """One ensemble that is blind to prices, stopped early on other rows."""
    if boosting.engine == "xgboost":
        return grow_by_xgboost(boosting, rows, validation)
    return boost(boosting, rows, validation=validation)
