"""Regression: squared risk at every node."""

from __future__ import annotations

from sklearn.base import RegressorMixin

from ..losses import SquaredLoss
from ._base import CSTCBase
from ._labels import check_numbers
from ._parameters import ATTRIBUTES, document_parameters

__all__ = ["CSTCRegressor"]


class CSTCRegressor(RegressorMixin, CSTCBase):
    __doc__ = f"""Cost-sensitive tree of regressors: squared risk at every node.

    Each input takes its own path through the tree and buys only the features that this path needs.
    {document_parameters()}
    {ATTRIBUTES}

    References
    ----------
    Xu, Kusner, Weinberger, Chen: Cost-Sensitive Tree of Classifiers. ICML 2013.

    Examples
    --------
    >>> from cstc import CSTCRegressor
    >>> from cstc.datasets import QUADRANT_COSTS, make_quadrants
    >>> X, y = make_quadrants(1200, random_state=0)
    >>> model = CSTCRegressor(costs=QUADRANT_COSTS, cost_weight=0.03, weak_learners="identity", random_state=0)
    >>> model = model.fit(X[:1000], y[:1000])
    >>> round(model.score(X[1000:], y[1000:]), 3), float(model.predict_cost(X[1000:]).mean())
    (1.0, 12.0)
    """

    def fit(
        self,
        X,
        y=None,
        *,
        target=None,
        X_val=None,
        y_val=None,
        sample_weight=None,
        sample_weight_val=None,
        executor=None,
        scratch=None,
    ):
        """Fit the tree.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, n_features), or path
            A path is that of a folder of Parquet files, or of one file; see docs/folders.md.
        y : array-like of shape (n,), optional
        target : str, optional
            The column of X that holds the targets, where X is a table or a path and y is left out.
        X_val, y_val : like X and y, optional
            Validation data, which `Paper` and `Exact` prune by; they hold out a part of X otherwise.  `Experts`, the
            default with boosted trees, is cross-fitted and takes none.  A table or a path has the targets and weights
            in columns of the same names, where nothing else is given.
        sample_weight, sample_weight_val : array-like of shape (n,) or str, optional
            Weights of rows, or the name of their column.
        executor : distributed.Client or concurrent.futures.Executor, optional
            Who grows the large ensembles of `Experts`; without one, threads of this process do.  The model is the same.
        scratch : path, optional
            A folder that all workers see.  Rows that are in memory are written there, and removed at the end; without
            it into a temporary folder, where workers see that.

        Returns
        -------
        self
        """
        return self._fit(
            X,
            y,
            target=target,
            X_val=X_val,
            y_val=y_val,
            sample_weight=sample_weight,
            sample_weight_val=sample_weight_val,
            executor=executor,
            scratch=scratch,
        )

    def predict(self, X, *, return_cost=False, budget=None, unavailable=(), ids=None):
        """Predicted values of shape (n,).

        With `return_cost=True` also what each row pays (`predict_cost`), from the same walk.  With a `budget` no row
        pays more, and nothing of what is named in `unavailable` (sources, items, features) is bought: rows that would
        need it are answered with what there is.  Where the model is a `Mixture`, `ids`, one for each row, decide which
        of its two models answers a row; without ids the number of the row does.
        """
        return self._predict(X, ids, return_cost=return_cost, budget=budget, unavailable=unavailable)

    def _check_y(self, y, *, reset):
        return check_numbers(y)

    def _loss(self):
        return SquaredLoss()
