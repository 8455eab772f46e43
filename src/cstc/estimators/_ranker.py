"""Ranking: grades of documents, judged by the order within queries, NDCG at the first places."""

from __future__ import annotations

from sklearn.utils.validation import check_is_fitted

from ..losses import SquaredLoss
from ..method import Ranking
from ..metrics import ndcg
from ..rows import check_queries
from ._base import CSTCBase
from ._labels import check_numbers
from ._parameters import ATTRIBUTES, document_parameters

__all__ = ["CSTCRanker"]


class CSTCRanker(CSTCBase):
    __doc__ = f"""Cost-sensitive tree for ranking: grades of documents, judged by NDCG at the first places.

    Each document takes its own path through the tree and buys only the features that this path needs.
    {document_parameters(ranking=True)}
    {ATTRIBUTES}
    objective_ : {{"regression", "lambdarank"}}
        What experts were boosted for.

    References
    ----------
    Xu, Kusner, Weinberger, Chen: Cost-Sensitive Tree of Classifiers. ICML 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from cstc import CSTCRanker
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(600, 5)), np.repeat(np.arange(60), 10)
    >>> grades = np.clip(np.round(X[:, 0] + 1), 0, 4)
    >>> model = CSTCRanker(costs=[1, 5, 5, 5, 5], random_state=0).fit(X, grades, qid=qid)
    >>> bool(model.score(X, grades, qid=qid) > 0.9), float(model.predict_cost(X).mean())
    (True, 1.0)
    """

    _needs_queries = True

    def __init__(
        self,
        *,
        costs=None,
        cost_weight=None,
        mean_cost=None,
        method="auto",
        objective="auto",
        at=5,
        whole_queries=False,
        weak_learners="boosted",
        n_weak_learners=None,
        weak_learner_depth=None,
        learning_rate=0.1,
        early_stopping=20,
        categorical_features=None,
        random_state=None,
        n_jobs=None,
        device="cpu",
        verbose=0,
    ):
        super().__init__(
            costs=costs,
            cost_weight=cost_weight,
            mean_cost=mean_cost,
            method=method,
            weak_learners=weak_learners,
            n_weak_learners=n_weak_learners,
            weak_learner_depth=weak_learner_depth,
            learning_rate=learning_rate,
            early_stopping=early_stopping,
            categorical_features=categorical_features,
            random_state=random_state,
            n_jobs=n_jobs,
            device=device,
            verbose=verbose,
        )
        self.objective = objective
        self.at = at
        self.whole_queries = whole_queries

    def fit(
        self,
        X,
        y=None,
        *,
        target=None,
        qid=None,
        X_val=None,
        y_val=None,
        qid_val=None,
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
            Grades, 0 or more; 0 is not relevant.
        target : str, optional
            The column of X that holds the targets, where X is a table or a path and y is left out.
        qid : array-like of shape (n,) or str
            The query of each row, or the name of its column in X; the rows of a query stand together.
        X_val, y_val, qid_val : like X, y and qid, optional
            Validation data, which `Paper` and `Exact` prune by; they hold out whole queries otherwise.  `Experts`, the
            default with boosted trees, is cross-fitted and takes none.  A table or a path has the targets, queries and
            weights in columns of the same names, where nothing else is given.
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
            qid=qid,
            X_val=X_val,
            y_val=y_val,
            qid_val=qid_val,
            sample_weight=sample_weight,
            sample_weight_val=sample_weight_val,
            executor=executor,
            scratch=scratch,
        )

    def predict(self, X, *, qid=None, return_cost=False, budget=None, unavailable=(), ids=None):
        """Scores of shape (n,); within a query, higher is better.

        `qid`, the query of each row, is needed with `whole_queries`; otherwise rows are answered one by one.  With
        `return_cost=True` also what each row pays (`predict_cost`), from the same walk.  With a `budget` no row
        pays more, and nothing of what is named in `unavailable` (sources, items, features) is bought: rows that would
        need it are answered with what there is.  Where the model is a `Mixture`, `ids`, one for each row, decide which
        of its two models answers a row; without ids the number of the row does.
        """
        return self._predict(X, ids, qid=qid, return_cost=return_cost, budget=budget, unavailable=unavailable)

    def predict_cost(self, X, counting="branch", *, qid=None, budget=None, unavailable=(), ids=None):
        """Exact cost of each row: every item and every weak learner on its path is paid once.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, n_features)
        counting : {"branch", "learner"}, default="branch"
            "branch": the items on the branches that the row takes, what serving really pays.
            "learner": the paper's, all items of every used weak learner.
        qid, budget, unavailable, ids : optional
            As in `predict`; a budget is counted by branches.

        Returns
        -------
        ndarray of shape (n,)
        """
        return self._cost_of(X, counting, qid=qid, budget=budget, unavailable=unavailable, ids=ids)

    def apply(self, X, *, qid=None, ids=None):
        """The terminal element that each row reaches; `qid` and `ids` as in `predict`."""
        check_is_fitted(self)
        return self.model_.apply(self._rows(X), qid=qid, ids=ids)

    def score(self, X, y, *, qid=None, k=None):
        """Mean NDCG@k over the queries that have a relevant document, gain ``2^grade - 1``; k is `at` if not given."""
        if qid is None:
            raise ValueError(
                "qid is missing; a ranker is judged by its queries: score(X, y, qid=...), which a search of "
                "scikit-learn hands on by metadata routing only: sklearn.set_config(enable_metadata_routing=True), and "
                "set_fit_request(qid=True) and set_score_request(qid=True) of the ranker"
            )
        y = self._check_y(y, reset=False)
        query = check_queries(qid, y, "qid")
        return ndcg(y, self.predict(X, qid=query), query, self.at if k is None else k)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        return tags

    def _check_y(self, y, *, reset):
        y = check_numbers(y)
        if (y < 0).any() or (y > 30).any():
            raise ValueError(f"grades range from {y.min():g} to {y.max():g}; they must be from 0 to 30")
        return y

    def _check_weighted(self, y):
        if not (y > 0).any():
            raise ValueError(
                "no relevant document has a positive weight; at least one row with a grade above 0 must count"
            )

    def _check_method(self, method):
        if self.objective == "lambdarank" and not method.boosts_order:
            raise ValueError(
                f"objective is 'lambdarank', and {type(method).__name__} boosts squared risk only; take "
                "objective='auto', or method=Experts()"
            )
        if self.whole_queries and not method.sees_queries:
            raise ValueError(
                f"whole_queries is True, and {type(method).__name__} looks at rows one by one; leave it out, or take "
                "method=Experts()"
            )

    def _take(self, trained):
        super()._take(trained)
        self.objective_ = trained.objective

    def _loss(self):
        return SquaredLoss()

    def _ranking(self):
        return Ranking(int(self.at), self.objective)

    def _whole_queries(self):
        return int(self.at) if self.whole_queries else None
