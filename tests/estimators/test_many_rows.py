"""From 10,000 rows on: larger trees and more rounds by themselves, and still the same model whoever grows it."""

import numpy as np
import pytest

from cstc import CSTCClassifier, CSTCRanker, CSTCRegressor, Experts, Paper
from cstc.baselines import L1, SingleClassifier
from cstc.experts import gates
from experts.cases import OWN_PRICES, PRICES, dear_for_some, own_features

MANY = 10_000
QUICK = {"n_weak_learners": 5, "learning_rate": 0.5, "random_state": 0}


class Enough(Exception):
    """What was to be seen was seen before anything was grown."""


@pytest.fixture
def told(monkeypatch):
    """How a method is told to boost on so many rows, by an estimator with some parameters."""
    seen = []

    def train(self, problem):
        seen.append(problem.boosting)
        raise Enough

    for method in (Experts, Paper):
        monkeypatch.setattr(method, "train", train)

    def ask(n, estimator=CSTCRegressor, **parameters):
        X = np.random.default_rng(0).normal(size=(n, 2))
        queries = {"qid": np.arange(n) // 10} if estimator is CSTCRanker else {}
        with pytest.raises(Enough):
            estimator(**parameters).fit(X, (X[:, 0] > 0).astype(int), **queries)
        return seen[-1].n_rounds, seen[-1].depth, seen[-1].n_leaves

    return ask


@pytest.mark.parametrize("estimator", [CSTCRegressor, CSTCClassifier, CSTCRanker])
def test_rounds_and_leaves_by_the_number_of_rows(estimator, told):
    assert told(MANY - 1, estimator) == (200, 4, 16)
    assert told(MANY, estimator) == (200, 8, 31)
    assert told(25_000, estimator, method=Experts(folds=2)) == (500, 8, 31)
    assert told(160_000, estimator) == (3000, 8, 31)


@pytest.mark.parametrize("n", [500, MANY])
def test_what_the_user_says_is_kept(n, told):
    assert told(n, n_weak_learners=7, weak_learner_depth=3) == (7, 3, None)  # as many leaves as the depth allows
    assert told(n, n_weak_learners=200, weak_learner_depth=4) == (200, 4, None)
    assert told(n, n_weak_learners=7)[0] == 7
    assert told(n, weak_learner_depth=3)[1:] == (3, None)


@pytest.mark.parametrize("n", [500, MANY, 50_000])
def test_the_paper_stays_as_it_is(n, told):
    assert told(n, method=Paper()) == told(n, method="paper") == (200, 4, 16)
    assert told(n, method=Paper(), n_weak_learners=9, weak_learner_depth=2) == (9, 2, None)


def test_what_is_boosted_with_is_not_written_into_the_parameters():
    _, X, y, _ = dear_for_some("regression", 100)
    model = CSTCRegressor(random_state=0, early_stopping=1).fit(X, y)
    assert (model.n_weak_learners, model.weak_learner_depth, model.get_params()["method"]) == (None, None, "auto")


# -- trees ---------------------------------------------------------------------------------------------------------


def sizes_of(pool):
    """Leaves and depth of each tree."""
    leaves = np.bincount(pool.owners[pool.feature < 0], minlength=pool.n_learners)
    depth = np.zeros(pool.n_learners, dtype=int)
    level = pool.roots
    while (inner := pool.feature[level] >= 0).any():
        depth[np.unique(pool.owners[level[inner]])] += 1
        level = np.concatenate([pool.left[level[inner]], pool.right[level[inner]]])
    return leaves, depth


def wavy(n=MANY, seed=0):
    """Many leaves are worth it, and one feature calls for deep trees."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 5))
    return X, np.exp(5 * X[:, 0]) / 50 + np.sin(6 * X[:, 1]) * X[:, 2] + 0.1 * rng.normal(size=n)


def test_trees_of_many_rows_have_at_most_31_leaves_and_are_at_most_8_splits_deep():
    X, y = wavy()
    pool = CSTCRegressor(cost_weight=0.0, method=Experts(fallbacks=False), **QUICK).fit(X, y).model_.pool
    leaves, depth = sizes_of(pool)
    assert leaves.max() == 31
    assert 4 < depth.max() <= 8
    # three members of five rounds, and six rounds on all rows
    assert pool.n_learners == 3 * 5 + 6


def test_trees_of_many_rows_with_a_given_depth():
    X, y = wavy()
    leaves, depth = sizes_of(CSTCRegressor(cost_weight=0.0, weak_learner_depth=2, **QUICK).fit(X, y).model_.pool)
    assert (leaves.max(), depth.max()) == (4, 2)


def test_trees_of_few_rows_are_four_splits_deep():
    X, y = wavy(2000)
    pool = CSTCRegressor(cost_weight=0.0, method=Experts(fallbacks=False), **QUICK).fit(X, y).model_.pool
    leaves, depth = sizes_of(pool)
    assert 8 < leaves.max() <= 16
    assert depth.max() == 4
    assert pool.n_learners == 5 * 5


# -- the same model ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "task", "prices", "cost_weight"),
    [
        (dear_for_some, "regression", PRICES, 0.02),
        (dear_for_some, "classes", PRICES, 0.01),
        (dear_for_some, "three classes", PRICES, 0.02),
        (own_features, "regression", OWN_PRICES, 0.01),  # with groups of rows and lazy experts
    ],
    ids=["regression", "classes", "three classes", "groups"],
)
def test_the_number_of_threads_does_not_change_the_model(data, task, prices, cost_weight, tmp_path):
    estimator, X, y, _ = data(task, MANY)
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.01, np.nan, X)
    if data is own_features:
        X[:, 0] = np.nan_to_num(X[:, 0])  # rows are told apart by a column without missing values
    files, candidates = [], []
    for n_jobs in (1, 2):
        model = estimator(costs=prices, cost_weight=cost_weight, n_jobs=n_jobs, **QUICK).fit(X, y)
        model.save(tmp_path / f"{n_jobs}.cstc")
        files.append((tmp_path / f"{n_jobs}.cstc").read_bytes())
        candidates.append(repr(model.candidates_))
    assert files[0] == files[1]
    assert candidates[0] == candidates[1]
    assert model.model_.shape.n_nodes > 1  # gates, or not much would be tested
    if data is own_features:
        assert any(row.name.endswith(" branches") for row in model.candidates_)


@pytest.mark.parametrize(("task", "most"), [("classes", 0.05), ("three classes", 0.12)])
def test_classes_of_many_rows_are_told_apart(task, most):
    estimator, X, y, _ = dear_for_some(task, MANY + 2000)
    model = estimator(costs=PRICES, cost_weight=1e-4, **QUICK | {"n_weak_learners": 15}).fit(X[:MANY], y[:MANY])
    assert np.mean(model.predict(X[MANY:]) != y[MANY:]) < most
    assert model.predict_cost(X[MANY:]).mean() < sum(PRICES)


def test_nothing_is_printed(capfd):
    _, X, y, _ = dear_for_some("three classes", MANY)
    CSTCClassifier(costs=PRICES, cost_weight=0.002, n_jobs=2, **QUICK).fit(X, y)
    assert capfd.readouterr() == ("", "")


# -- systems of the paper ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", [SingleClassifier, L1])
def test_systems_on_plain_inputs_may_leave_boosting_unsaid(system):
    """Their defaults are numbers, those of the estimators are not."""
    _, X, y, _ = dear_for_some("regression", 200)
    system(costs=PRICES, weak_learners="identity", random_state=0).fit(X, y)
    for name, value in (("n_weak_learners", 100), ("weak_learner_depth", 5)):
        with pytest.raises(ValueError, match=f"{name} is {value}, and with .* nothing is boosted"):
            system(costs=PRICES, weak_learners="identity", random_state=0, **{name: value}).fit(X, y)


@pytest.fixture(scope="module")
def uneven():
    """Rows, and a target whose classes are far from even if it is cut at 2."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(MANY, 4))
    return X, X @ [1.0, 0.7, 0.5, 0.3] + rng.normal(size=MANY)


def test_gates_predict_gains_and_nothing_else(uneven, monkeypatch):
    """The scores that experts start from must not get into the gates."""
    X, y = uneven
    heard, learn = [], gates.learn_gate

    def listened(chain, stage, gain):
        gate, said = learn(chain, stage, gain)
        heard.append((gain, said))
        return gate, said

    monkeypatch.setattr(gates, "learn_gate", listened)
    prices = [1.0, 2.0, 4.0, 8.0]
    CSTCClassifier(cost_weight=0.005, costs=prices, n_weak_learners=15, random_state=0).fit(X, (y > 2).astype(int))
    assert heard
    for gain, said in heard:
        assert abs(said.mean() - gain.mean()) < 0.1 * gain.std()
        assert np.corrcoef(said, gain)[0, 1] > 0.05


def test_the_answer_and_its_cost_come_together(uneven):
    X, y = uneven
    model = CSTCClassifier(cost_weight=0.005, **QUICK).fit(X, (y > 0).astype(int))
    for method in (model.predict, model.predict_proba):
        answer, cost = method(X[:100], return_cost=True)
        np.testing.assert_array_equal(answer, method(X[:100]))
        np.testing.assert_array_equal(cost, model.predict_cost(X[:100]))
