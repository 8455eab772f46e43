"""Models of every task for which something of a path is not to be had, and what must hold of the answers then."""

import warnings
from dataclasses import replace
from functools import cache

import lightgbm
import numpy as np

import cstc
from builders import N_FEATURES
from cstc import CSTCClassifier, CSTCRanker, CSTCRegressor, Exact, Experts, Paper
from cstc.costs import CostModel
from cstc.model.fallbacks import UNKNOWN, Estimates
from cstc.serving import OnDemandPredictor, Session, extractor
from serving.worlds import TASKS, World, random_world, with_shares

NAMES = [f"x{j}" for j in range(N_FEATURES)]
PRICES = {**{name: 1.0 + j for j, name in enumerate(NAMES)}, "draw": 2.0}
BILLS = {"x1": ["draw"], "x2": ["draw"]}


def random_estimates(rng, model):
    """The same model with fallbacks, and with losses and sources that nobody measured."""
    n_learners, n_nodes, n_outputs = model.predict_weights.shape
    n_fallbacks, n_features = int(rng.integers(0, 4)), len(model.schema.feature_names)
    weights = rng.normal(size=(n_learners, n_fallbacks, n_outputs))
    weights[rng.random(weights.shape) < 0.8] = 0.0
    n_experts = n_nodes + n_fallbacks
    losses = rng.uniform(0.1, 1, (n_nodes, n_experts))
    losses[rng.random(losses.shape) < 0.3] = UNKNOWN
    n_sources, n_sets = int(rng.integers(1, n_features + 1)), int(rng.integers(0, 4))
    home = rng.integers(n_sources, size=n_features)
    return replace(
        with_shares(rng, model),
        schema=replace(model.schema, means=rng.normal(size=n_features)),
        fallback_weights=weights,
        fallback_intercepts=rng.normal(size=(n_fallbacks, n_outputs)),
        estimates=Estimates(
            losses=losses,
            path_losses=rng.uniform(0.1, 0.5, n_nodes),
            harm=rng.uniform(0, 0.5, (n_experts, n_sources)),
            sets=rng.random((n_sets, n_features)) < 0.4,
            set_harm=np.where(rng.random((n_experts, n_sets)) < 0.5, UNKNOWN, rng.random((n_experts, n_sets))),
            source_names=[f"source {s}" for s in range(n_sources)],
            source_features=home == np.arange(n_sources)[:, None],
            cost_weight=float(rng.choice([0.0, 0.05])),
        ),
    )


def random_worlds(rng, n):
    """Worlds of all tasks in turn; every other one has fallbacks and estimates."""
    for k in range(n):
        task = list(TASKS)[k % len(TASKS)]
        world = random_world(rng, task, 6, missing=bool(k % 3), evaluation=[0.0, 0.3][k // 2 % 2])
        model = random_estimates(rng, world.model) if k // len(TASKS) % 2 else with_shares(rng, world.model)
        yield World(model, world.X, world.rows)


@cache
def trained_models(n_rows=260, n_weak_learners=8):
    """Small models of every task and method, by name, and a table of rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, N_FEATURES)).round(1)
    X[rng.random(X.shape) < 0.04] = np.nan
    Z = np.nan_to_num(X)
    signal = Z[:, 0] + 2 * (Z[:, 1] > 0.3) * Z[:, 2] + 0.5 * Z[:, 4]
    grades = np.clip(np.round(signal + 1), 0, 4)
    three = np.array(["low", "middle", "high"])[np.digitize(signal, [-0.5, 0.8])]
    queries = np.repeat(np.arange(n_rows // 10), 10)
    options = dict(costs=CostModel(PRICES, BILLS), cost_weight=0.003, random_state=0, n_jobs=1)
    plain = options | dict(weak_learners="identity", method=Exact(depth=2))
    options |= dict(n_weak_learners=n_weak_learners, weak_learner_depth=2)
    priced = options | dict(costs=CostModel(PRICES, BILLS, 0.01))
    named = Experts(folds=2, sources={"first": ["x0", "x3"]})
    paper = Paper(depth=2, max_iter=10)
    booster = lightgbm.LGBMRegressor(n_estimators=8, num_leaves=6, verbosity=-1, n_jobs=1, random_state=0)
    sorter = lightgbm.LGBMClassifier(n_estimators=4, num_leaves=6, verbosity=-1, n_jobs=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few steps are enough here
        return X, {
            "experts, regression": CSTCRegressor(**options).fit(X, signal),
            "experts, regression, named sources": CSTCRegressor(method=named, **options).fit(X, signal),
            "experts, regression, evaluation": CSTCRegressor(**priced).fit(X, signal),
            "experts, two classes": CSTCClassifier(**options).fit(X, signal > 0.5),
            "experts, three classes": CSTCClassifier(**options).fit(X, three),
            "experts, ranking": CSTCRanker(**options).fit(X, grades, qid=queries),
            "experts without fallbacks": CSTCRegressor(method=Experts(fallbacks=False), **options).fit(X, signal),
            "paper, regression, evaluation": CSTCRegressor(method=paper, **priced).fit(X, signal),
            "paper, three classes": CSTCClassifier(method=paper, **options).fit(X, three),
            "exact, two classes": CSTCClassifier(**plain).fit(Z, signal > 0.5),
            "lightgbm, regression": cstc.from_lightgbm(booster.fit(X, signal), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            "lightgbm, three classes": cstc.from_lightgbm(sorter.fit(X, three)),
        }


def table_for(model, X):
    """Rows that a model can compute with: none are missing where it passes on numbers."""
    return np.nan_to_num(X) if model.plain_features.any() else X


def told_rows(model, X):
    """Rows as a caller tells them."""
    return [{name: float(value) for name, value in zip(model.schema.feature_names, row, strict=True)} for row in X]


class Market:
    """One source for each source of the model, or for each feature, some of which are down; calls are noted."""

    def __init__(self, model, rows, down=(), **options):
        self.calls = []
        names = model.schema.feature_names
        estimates = model.estimates
        homes = np.eye(len(names), dtype=bool) if estimates is None else estimates.source_features
        self.groups = [[names[j] for j in np.flatnonzero(home)] for home in homes if home.any()]
        self.extractors = [self._source(rows, group, not set(group).isdisjoint(down), options) for group in self.groups]
        self.predictor = OnDemandPredictor(model, self.extractors)

    def _source(self, rows, group, is_down, options):
        def fetch(i):
            self.calls.append((i, group[0]))
            if is_down:
                raise OSError("down")
            return {name: rows[i][name] for name in group}

        return extractor(provides=group, name=f"source of {group[0]}", instant=True, **options)(fetch)


def serve(session, told, down=(), rng=None):
    """Ask and tell to the end; sources that are `down` fail, and values come one by one if there is an `rng`."""
    asked = []
    while wanted := session.wanted():
        asked += wanted
        bad = [name for name in wanted if name in down]
        good = {name: told[name] for name in wanted if name not in bad}
        if rng is None:
            if good:
                session.tell(good)
            bad = [name for name in bad if name in session.wanted()]
            if bad:
                session.fail(bad, "down")
            continue
        late = []
        for name in rng.permutation(wanted).tolist():
            if name in bad:
                session.fail([name], "down")
            elif session.wanted() and rng.random() < 0.7:
                session.tell({name: told[name]})
            else:
                late.append(name)  # it comes when the row is elsewhere already
        for name in late:
            if name not in session.wanted():
                session.tell({name: told[name]})
    assert session.finished
    return session.answer(), asked


def check_bill(model, answer, budget=None):
    """What was bought is paid once, and no more than the budget."""
    bought = [item for entry in answer.trail if entry["event"] == "bought" for item in entry["items"]]
    assert sorted(bought) == sorted(answer.items)
    cost = sum(answer.items.values()) + model.costs.evaluation * answer.n_evaluated
    np.testing.assert_allclose(answer.cost, cost, rtol=1e-12, atol=1e-12)
    assert budget is None or answer.cost <= budget


def same_answer(answer, margins, cost):
    """Whether an answer has the very bits of a table's; within 1e-12 it must."""
    np.testing.assert_allclose(answer.margins, margins, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(answer.cost, cost, rtol=1e-12, atol=1e-12)
    return bool(np.array_equal(answer.margins, margins, equal_nan=True) and answer.cost == cost)


def random_outage(rng, model):
    """Names of some features, items or sources."""
    names = [*model.schema.feature_names, *model.costs.item_names]
    names += [] if model.estimates is None else model.estimates.source_names
    return rng.choice(names, size=int(rng.integers(0, 3)), replace=False).tolist()


def random_budget(rng, model):
    most = float(model.terminal_costs().max()) + 1e-9
    return None if rng.random() < 0.3 else float(rng.uniform(0, 1.1 * most))


def compare(rng, model, X, rows):
    """Outages and budgets of some rows: a table's answers, and those of sessions and of a predictor.

    Returns how many rows were compared, and how many of them had the very same bits.
    """
    n, n_bits = len(X), 0
    unavailable, budget = random_outage(rng, model), random_budget(rng, model)
    margins, cost = model.decision_and_cost(X, budget=budget, unavailable=unavailable)
    gone = {model.schema.feature_names[j] for j in model.columns_named(unavailable)}
    market = Market(model, rows)
    with market.predictor as predictor:
        many = predictor.predict_many(range(n), budget=budget, unavailable=unavailable)
        for i in range(n):
            answer, asked = serve(Session(model, budget=budget, unavailable=unavailable), rows[i])
            assert len(set(asked)) == len(asked)
            assert gone.isdisjoint(asked)
            check_bill(model, answer, budget)
            if answer.status == "complete":
                assert (answer.basis, answer.expected_loss) == ("", 0.0)
            else:
                assert answer.basis
                assert answer.expected_loss is None or 0 <= answer.expected_loss < np.inf
            one = predictor.predict(i, budget=budget, unavailable=unavailable)
            n_bits += same_answer(answer, margins[i], cost[i])
            for other in (one, many[i]):
                same_answer(other, margins[i], cost[i])
                check_bill(model, other, budget)
                assert (other.status, other.reason, other.basis) == (answer.status, answer.reason, answer.basis)
                assert other.expected_loss == answer.expected_loss
                bought = [name for entry in other.trail if entry["event"] == "bought" for name in entry["features"]]
                assert gone.isdisjoint(bought)
    assert len(set(market.calls)) * 2 >= len(market.calls)  # once in predict and once in predict_many
    return n, n_bits
