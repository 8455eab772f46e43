"""The default method: experts on growing sets of features, gates that stop each row in time, branches where they pay.

1. Two orders of buying are cut into stages, nested sets of features (`purchases`).
2. Each stage gets an expert, the best predictor on its features, cross-fitted (`expert`, `chain`).
3. For the given cost weight, gates are learned from the last stage to the first (`gates`).  Stages that all rows pass
   are left out.  Gates may also choose between the orders (`crossings`).
4. Groups of rows that need different features may get chains of their own (`branches`).
5. The end of the chain, or all of it, may be an expert that buys on its branches (`lazy`).

All of these are candidates (`candidates`), and the one with the least expected loss is taken.

Steps 1, 2 and 4 do not know the cost weight, so a whole frontier shares them; lazy experts are shared by cost weights
around a power of two.  Rows never teach twice: experts answer gates out of fold, gates answer each
other from the other half, and validation rows teach nothing at all, so that they can choose between cost weights.
Only how rows are parted into groups is learned from rows that groups then learn from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..boosting import GATE_ROUNDS, Boosting, work_of
from ..capacity import Capacity, boosted_for, capacity_for, folds_for
from ..cluster import InMemory, Part, core_of_rows
from ..engines import ENGINES, engine_on
from ..method import CandidateRow, Method, OutOfFold, Preview, Problem, Trained
from ..model import FittedTree
from ..model.build import build_tree
from ..model.queries import QueryTree, gated_nodes
from ..rows import Rows, Units, folds_of
from .candidates import Candidate, Family, candidates_for, everything_of, least_of
from .chain import ChainGrower
from .expert import scores_of, work_of_expert
from .fallbacks import fallbacks_for
from .gates import expect_gates
from .lazy import LazyExperts
from .places import SHARE, Places
from .purchases import EXPONENTS, MOST_STAGES
from .queries import WholeQueries, with_made_columns
from .sources import Sources, sources_of
from .worthwhile import weighed_in_money

__all__ = ["Experts"]

#: Of what an error at a ranked document weighs, the part that its place decides (`places`).  A gate that sees one
#: document at a time does not know its place: with 0.9, NDCG@5 at equal cost was lower by 0.002 in the mean over
#: budgets (one rotation of mq2007, 1,692 queries).
PLACED = 0.0
#: What keeps experts from learning noise; chosen on small and middle-sized data alike.
REGULARISED = {"feature_fraction": 0.7, "row_fraction": 0.8, "l2": 2.0}


class Experts(Method):
    """A chain of boosted experts on growing sets of features, with gates, and branches where rows need different ones.

    The default method with boosted trees.  docs/beyond-the-paper.md explains it on one page.

    Parameters
    ----------
    folds : int or None, default=None
        Every expert is grown once without each fold: what gates learn from it never saw the row.  None: 5, from 10,000
        rows on 3, from 50,000 on 2.
    rows_per_fit : int or None, default=None
        With more rows than this, each ensemble learns from a sample of so many: an expert is the mean of as many
        members as there are folds, each on a sample of its own, and at most 100,000 further rows teach no ensemble but
        all gates.  Of a folder of Parquet files no more is read at a time.  None: all rows teach every expert.
    fallbacks : bool, default=True
        Whether the model holds further experts, which answer when a budget or an outage keeps a row from what its path
        needs.  Without them, and without what is measured for them, what is lost is averaged over both sides of the
        splits, and a budget below the first bill buys nothing.
    sources : dict of str to list of str or int, or None, default=None
        Features that come from one source, and fail together.  Of the others, those that share an item are one source,
        and each other feature is its own.
    engine : {"lightgbm", "xgboost"} or None, default=None
        What grows experts and gates; None: LightGBM, or XGBoost where `device` of the estimator is "cuda".  XGBoost
        runs on CPUs, too, and is the extra `gpu`.  What prices need, orders of buying and lazy experts, is grown by
        LightGBM in any case, beside XGBoost from at most 20,000 rows.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from cstc import CSTCClassifier, Experts
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = CSTCClassifier(method=Experts(folds=3), n_weak_learners=20, random_state=0).fit(X, y)
    >>> [candidate.verdict for candidate in model.candidates_ if candidate.verdict == "taken"]
    ['taken']
    """

    takes = ("boosted",)
    uses_validation = False
    weighs_errors = True
    boosts_order = True
    uses_workers = True
    sees_queries = True

    def __init__(self, *, folds=None, rows_per_fit=None, fallbacks=True, sources=None, engine=None):
        self.folds = folds
        self.rows_per_fit = rows_per_fit
        self.fallbacks = fallbacks
        self.sources = sources
        self.engine = engine

    def check(self) -> None:
        self._check_counts("folds", least=2, or_none=True)
        self._check_counts("rows_per_fit", least=100, or_none=True)
        if self.engine is not None:
            self._check_choice("engine", ENGINES)
        if not isinstance(self.fallbacks, bool | np.bool_):
            raise ValueError(f"fallbacks is {self.fallbacks!r}; it must be True or False")
        if self.sources is not None and not isinstance(self.sources, Mapping):
            raise ValueError(
                f"sources is {self.sources!r}; it must map names to lists of features: "
                "{'laboratory': ['glucose', 'insulin']}"
            )
        for source, features in (self.sources or {}).items():
            if isinstance(features, str) or not isinstance(features, Sequence | np.ndarray) or not len(features):
                raise ValueError(f"sources[{source!r}] is {features!r}; it must be a list of features")

    def capacity(self, n_rows: int) -> Capacity:
        return capacity_for(n_rows if self.rows_per_fit is None else min(n_rows, self.rows_per_fit))

    def engine_on(self, device: str) -> str:
        return engine_on(device, self.engine)

    def train(self, problem: Problem) -> Trained:
        return self.preview(problem).build()

    def preview(self, problem: Problem) -> Preview:
        """All candidates, out of fold; a tree is built of the one that is taken, and of what answers on bad days."""
        sources = sources_of(self.sources, problem.schema.feature_names, problem.costs)
        if "family" not in problem.shared:
            problem.shared["family"] = self._grow(problem)
        family, units = problem.shared["family"]
        expect_gates(family.grown.chains, begin=False)
        if problem.cost_weight == 0:  # nothing is weighed
            candidates = [everything_of(family)]
        else:
            problem.report("gates")
            candidates = candidates_for(family, units.standard_weight(problem.cost_weight))
        if problem.decisions is None or problem.cost_weight == 0:
            taken = least_of(candidates)
        else:
            candidates, taken = weighed_in_money(family, candidates, problem.cost_weight)
        at, paid = taken.paid()
        at = family.numbers(at)
        judges = Rows(None, problem.rows.y[at], problem.rows.weights[at])
        return Preview(judges, paid, lambda: self._build(problem, candidates, taken, sources))

    def _build(self, problem: Problem, candidates: Sequence[Candidate], taken: Candidate, sources: Sources) -> Trained:
        family, units = problem.shared["family"]
        nodes = taken.nodes(problem.costs)
        scores = scores_of(nodes.experts, problem.boosting)
        fallbacks, estimates = fallbacks_for(
            family,
            nodes,
            scores,
            sources,
            problem.cost_weight,
            units,
            grow=self.fallbacks,
        )
        schema, costs = problem.schema, problem.costs
        if problem.whole_queries is not None:
            schema, costs, estimates = with_made_columns(schema, costs, estimates, gated_nodes(nodes.shape))
        tree = build_tree(
            nodes.shape,
            scores,
            [None if route is None else route.times(units.risk(1.0)) for route in nodes.routes],
            constant=family.grower.boosting.constant,
            costs=costs,
            link=problem.loss.link,
            schema=schema,
            offset=units.offset,
            scale=units.scale,
            fallbacks=fallbacks,
            estimates=estimates,
            decisions=problem.decisions,
        )
        model: FittedTree | QueryTree = tree
        if problem.whole_queries is not None:
            model = QueryTree(tree, problem.whole_queries)
        at, margins = nodes.out_of_fold()
        return Trained(
            model=model,
            loss_history=[units.risk(taken.history)],
            converged=True,
            reached=nodes.reached,
            candidates=[_row(candidate, taken, units) for candidate in candidates],
            out_of_fold=OutOfFold(family.numbers(at), units.margins(margins).astype(np.float32)),
            objective="regression" if family.grower.of_experts.lambdarank is None else "lambdarank",
        )

    def n_ensembles(self, shared: dict[str, Any]) -> int:
        if "family" not in shared:
            return 0
        family, _ = shared["family"]
        return family.grower.n_grown + family.lazy.n_grown

    def _grow(self, problem: Problem) -> tuple[Family, Units]:
        """Steps 1 and 2, for all cost weights."""
        loss, costs = problem.loss, problem.costs
        units = Units.of(problem.rows, loss)
        rows, core = self._rows(problem, units)
        n = len(rows)
        n_folds = folds_for(n) if self.folds is None else self.folds
        if n < n_folds:
            raise ValueError(
                f"{n} training rows are fewer than the {n_folds} folds of the experts; "
                "give more rows, or method=Experts(folds=...) with a smaller number"
            )
        n_taught = n if rows.more is None else rows.more.n_per_fit
        boosting = problem.boosting.starting_at(rows, **REGULARISED | boosted_for(n_taught))
        folds = folds_of(rows, n_folds, problem.random_state, by_class=loss.has_classes)
        half = folds_of(rows, 2, problem.random_state + 1) == 0
        if len(np.unique(folds)) < 2 or half.all() or not half.any():
            what = "rows" if rows.qid is None else "whole queries"
            raise ValueError(f"experts are fitted in folds of {what}, and the data has too few of them; give more")
        _plan(boosting, rows, n_folds)
        stakes = None if problem.decisions is None else problem.stakes
        # gates that see places can tell at which documents an error matters
        placed = PLACED if problem.whole_queries is None else SHARE
        places = None if problem.ranking is None else Places(problem.ranking.at, units, placed)
        objective = _objective(problem, rows)
        seen = None if problem.whole_queries is None else WholeQueries(problem.whole_queries, units.scale)
        say = problem.progress.say  # not of the problem, which keeps what is grown: that would be a cycle
        grower = ChainGrower(rows, boosting, folds, half, say, stakes, rows.more, places, objective, seen)
        grown = grower.grow(np.arange(n), np.arange(rows.X.shape[1]), costs.prices == 0)
        constant = np.tile(boosting.constant, (n, 1))
        unit, boosted_unit = (costs.unit_of_weight(risk(constant)) for risk in (grower.lost, grower.risk))
        lazy = LazyExperts(
            boosting,
            rows,
            folds,
            unit,
            grown.expected,
            grower.teachers,
            boosted_unit=boosted_unit,
            calibrates=grower.calibrates,
        )
        return Family(grower, grown, lazy, core), units

    def _rows(self, problem: Problem, units: Units) -> tuple[Rows, np.ndarray | None]:
        """The rows that judge and, where nothing else does, teach, with further ones; and which training rows they are.

        Workers find them where they lie, or where they are written to.
        """
        rows, workers, most = units.standard(problem.rows), problem.boosting.workers, self.rows_per_fit
        if rows.more is not None:  # in a folder
            part = rows.part.in_units(units) if workers is None else workers.publish(rows, units)
            return replace(rows, part=part, more=rows.more.in_units(units)), None
        if workers is not None:
            rows = replace(rows, part=workers.publish(rows, units))
        if most is None or len(rows) <= most:
            return rows, None
        if workers is None:
            rows = replace(rows, part=Part(InMemory(rows)))
        core, more = core_of_rows(rows, most)
        return replace(rows.take(core), more=more), core


def _objective(problem: Problem, rows: Rows) -> str:
    """What experts may be grown for; where something forbids the order of documents, an error for who asks for it."""
    ranking = problem.ranking
    if ranking is None or ranking.objective == "regression":
        return "regression"
    why_not = None
    if problem.boosting.engine != "lightgbm":
        why_not = "LightGBM alone grows it here; take engine='lightgbm' and device='cpu'"
    elif rows.more is not None:
        why_not = f"samples of {rows.more.n_per_fit} rows are read without their queries; take rows_per_fit=None"
    elif (problem.rows.y != np.rint(problem.rows.y)).any():
        broken = problem.rows.y[problem.rows.y != np.rint(problem.rows.y)][0]
        why_not = f"grades hold {broken:g}; it needs whole numbers from 0 to 30"
    if why_not is None:
        return ranking.objective
    if ranking.objective == "lambdarank":
        raise ValueError(f"objective is 'lambdarank', and {why_not}, or objective='regression'")
    return "regression"


def _plan(boosting: Boosting, rows: Rows, n_folds: int) -> None:
    """Before orders of buying are known: two of them, whose stages have half of the features on average."""
    n, n_columns = rows.X.shape
    n_sets = len(EXPONENTS) * min(MOST_STAGES, n_columns)
    half, everything = np.arange(n_columns // 2 + 1), np.arange(n_columns)
    work = n_sets * work_of_expert(boosting, half, rows, n_folds) + work_of_expert(boosting, everything, rows, n_folds)
    boosting.progress.plan("experts", work, once=True)
    boosting.progress.plan("gates", n_sets * 2 * work_of(n // 2, len(half), GATE_ROUNDS))


def _row(candidate: Candidate, taken: Candidate, units: Units) -> CandidateRow:
    verdict = "taken" if candidate is taken else candidate.why_not or "expected to lose more"
    return CandidateRow(candidate.name, float(units.risk(candidate.loss)), float(candidate.cost), verdict)
