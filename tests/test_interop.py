"""LightGBM models as fitted trees: the same numbers, served on demand."""

import lightgbm
import numpy as np
import pandas as pd
import pytest

import cstc
from cstc.costs import CostModel
from cstc.serving import OnDemandPredictor, Session, extractor

QUIET = {"verbosity": -1, "num_threads": 1, "min_data_per_group": 5, "num_leaves": 12, "seed": 0}
NAMES = ["a", "b", "c", "d", "kind"]


def make_rows(n=400, *, missing=True, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5)).round(1)
    X[:, 4] = rng.integers(0, 6, size=n)
    X[rng.random(n) < 0.3, 1] = 0.0
    if missing:
        X[rng.random(n) < 0.2, 0] = np.nan
        X[rng.random(n) < 0.1, 4] = np.nan
    return X


def train(objective, *, rounds=15, missing=True, labels=None, group=None, **parameters):
    X = make_rows(missing=missing)
    signal = np.nan_to_num(X[:, 0]) + X[:, 1] * X[:, 2] + 2.0 * np.isin(X[:, 4], [1, 4])
    y = signal if labels is None else labels(signal)
    data = lightgbm.Dataset(X, y, feature_name=NAMES, categorical_feature=["kind"], group=group)
    return lightgbm.train({"objective": objective} | QUIET | parameters, data, rounds), X


def odd_rows():
    """Rows unlike those of training: missing everywhere, unknown categories, zeros."""
    X = make_rows(200, seed=1)
    rng = np.random.default_rng(2)
    X[rng.random(X.shape) < 0.15] = np.nan
    X[rng.random(X.shape) < 0.1] = 0.0
    X[rng.random(len(X)) < 0.2, 4] = 17
    return X


TASKS = {
    "regression": dict(objective="regression"),
    "regression without missing values": dict(objective="regression", missing=False),
    "l1": dict(objective="regression_l1"),
    "zero as missing": dict(objective="regression", zero_as_missing=True),
    "no missing handling": dict(objective="regression", use_missing=False),
    "dart": dict(objective="regression", boosting="dart"),
    "forest": dict(objective="regression", boosting="rf", bagging_freq=1, bagging_fraction=0.6),
    "deep": dict(objective="regression", num_leaves=120, min_data_in_leaf=1),
    "stumps and single leaves": dict(objective="regression", min_gain_to_split=30.0),
    "lambdarank": dict(
        objective="lambdarank", labels=lambda s: np.clip(np.round(s + 1), 0, 4).astype(int), group=[20] * 20
    ),
    "binary": dict(objective="binary", labels=lambda s: (s > 0.5).astype(int)),
    "multiclass": dict(objective="multiclass", num_class=3, labels=lambda s: np.digitize(s, [-0.3, 1.0])),
}


@pytest.mark.filterwarnings("ignore::cstc.UnseenValueWarning")
@pytest.mark.parametrize("task", TASKS)
def test_equals_the_booster(task):
    booster, X = train(**TASKS[task])
    model = cstc.from_lightgbm(booster, costs=np.arange(1.0, 6.0))
    for rows in (X, odd_rows()):
        raw = booster.predict(rows, raw_score=task != "forest")  # of a forest, raw scores are sums
        np.testing.assert_allclose(np.squeeze(model.decision_function(rows)), raw, rtol=1e-9, atol=1e-12)
        output = booster.predict(rows)
        if task == "binary":
            np.testing.assert_allclose(model.predict_proba(rows)[:, 1], output, rtol=1e-9)
        elif task == "multiclass":
            np.testing.assert_allclose(model.predict_proba(rows), output, rtol=1e-9)
        else:
            np.testing.assert_allclose(model.predict(rows), output, rtol=1e-9, atol=1e-12)
    # before anything is bought: the mean over the training rows
    mean = np.mean(booster.predict(X, raw_score=task != "forest"), axis=0)
    np.testing.assert_allclose(model.constant, np.atleast_1d(mean), rtol=0.2, atol=0.2)


@pytest.mark.parametrize("task", ["regression", "lambdarank", "binary", "multiclass", "forest"])
def test_served_on_demand(task):
    booster, X = train(**TASKS[task])
    costs = CostModel(dict.fromkeys("abcd", 1.0) | {"visit": 3.0}, {"kind": ["visit"], "d": ["visit"]})
    model = cstc.from_lightgbm(booster, costs)
    table = extractor(provides=NAMES, instant=True)(lambda i: X[i])
    raw, cost = booster.predict(X, raw_score=task != "forest"), model.predict_cost(X)
    with OnDemandPredictor(model, [table]) as predictor:
        for i in range(0, len(X), 4):
            answer = predictor.predict(i)
            np.testing.assert_allclose(np.squeeze(answer.margins), raw[i], rtol=1e-9, atol=1e-12)
            assert answer.cost == pytest.approx(cost[i])
        assert predictor.predict(0, budget=0).margins == model.constant.tolist()


def test_missing_values_are_valid_where_training_saw_some():
    model = cstc.from_lightgbm(train("regression")[0])
    assert dict(zip(NAMES, model.schema.may_miss.tolist(), strict=True))["a"]
    assert not model.schema.may_miss[1:4].any()
    assert not cstc.from_lightgbm(train("regression", missing=False)[0]).schema.may_miss[:4].any()
    with pytest.warns(cstc.UnseenValueWarning, match="b is missing, and training saw no missing values in it"):
        Session(model, known={"b": None})
    unused = cstc.from_lightgbm(train("regression", missing=False, rounds=1, num_leaves=2)[0])
    assert unused.schema.may_miss.sum() == len(NAMES) - 1  # nothing is known of what no split looks at


def test_trees_up_to_the_best_iteration():
    X = make_rows()
    y = X[:, 1] + np.random.default_rng(0).normal(size=len(X))
    data = lightgbm.Dataset(X[:200], y[:200])
    booster = lightgbm.train(
        {"objective": "regression", "learning_rate": 0.5} | QUIET,
        data,
        60,
        valid_sets=[lightgbm.Dataset(X[200:], y[200:], reference=data)],
        callbacks=[lightgbm.early_stopping(2, verbose=False)],
        keep_training_booster=True,
    )
    assert booster.best_iteration < booster.current_iteration()
    np.testing.assert_allclose(cstc.from_lightgbm(booster).predict(X), booster.predict(X), rtol=1e-9)


def test_the_scikit_learn_face():
    X = make_rows()
    y = np.where(X[:, 1] + X[:, 2] > 0, "yes", "no")
    estimator = lightgbm.LGBMClassifier(n_estimators=10, verbosity=-1, n_jobs=1).fit(X, y)
    model = cstc.from_lightgbm(estimator)
    assert model.schema.classes.tolist() == ["no", "yes"]
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], estimator.booster_.predict(X), rtol=1e-9)
    assert Session(model, known=dict(zip(model.schema.feature_names, X[0], strict=True))).answer().value in (
        "no",
        "yes",
    )


# ------------------------------------------------------------------------------------- pandas categories


def make_table(n=300):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=n), "n": rng.integers(0, 5, size=n)})
    table["city"] = pd.Categorical(rng.choice(["Ulm", "Bonn", "Kiel"], n), categories=["Ulm", "Kiel", "Bonn"])
    table["grade"] = pd.Categorical(rng.choice([10, 20, 30], n))
    y = table["a"] + 2.0 * (table["city"] == "Bonn") + (table["grade"] == 20) + (table["n"] == 3)
    return table, y


def test_categories_of_pandas():
    table, y = make_table()
    booster = lightgbm.train({"objective": "regression"} | QUIET, lightgbm.Dataset(table, y), 10)
    for one in (booster, lightgbm.Booster(model_str=booster.model_to_string())):  # trained, and loaded from a file
        model = cstc.from_lightgbm(one)
        assert model.schema.categories == {"city": ["Ulm", "Kiel", "Bonn"], "grade": ["10", "20", "30"]}
        expected = one.predict(table)
        for i in range(0, 300, 7):
            session = Session(model)
            while wanted := session.wanted():
                session.tell({name: table[name].iloc[i] for name in wanted})
            assert session.answer().value == pytest.approx(expected[i], rel=1e-9)
    unknown = table.head(1).assign(city=pd.Categorical(["Rom"]))
    known = {"a": unknown["a"].iloc[0], "n": 3, "city": "Rom", "grade": unknown["grade"].iloc[0]}
    with pytest.warns(cstc.UnseenValueWarning, match="city holds a category that training did not see"):
        session = Session(model, known=known)
    assert session.answer().value == pytest.approx(booster.predict(unknown.assign(n=3))[0])


def test_categories_that_the_booster_does_not_assign():
    table, y = make_table()
    data = lightgbm.Dataset(table, y, categorical_feature=["n", "city"])
    booster = lightgbm.train({"objective": "regression"} | QUIET, data, 10)
    with pytest.raises(ValueError, match="2 pandas columns of categories, and does not say which"):
        cstc.from_lightgbm(booster)
    categories = {"city": ["Ulm", "Kiel", "Bonn"], "grade": [10, 20, 30]}
    model = cstc.from_lightgbm(booster, categories=categories)
    codes = table.assign(city=table["city"].cat.codes, grade=table["grade"].cat.codes).to_numpy(float)
    np.testing.assert_allclose(model.predict(codes), booster.predict(table), rtol=1e-9)
    with pytest.raises(ValueError, match="categories names 'town', which is no feature"):
        cstc.from_lightgbm(booster, categories={"town": []})


# ---------------------------------------------------------------------------------------------- errors


def test_what_cannot_be_served_is_an_error():
    with pytest.raises(TypeError, match=r"booster is a int; give a lightgbm\.Booster"):
        cstc.from_lightgbm(3)
    poisson, X = train("poisson", labels=lambda s: np.abs(s))
    with pytest.raises(ValueError, match=r"'poisson' transforms raw scores.*raw_score=True"):
        cstc.from_lightgbm(poisson)
    model = cstc.from_lightgbm(poisson, raw_score=True)
    np.testing.assert_allclose(model.predict(X), poisson.predict(X, raw_score=True), rtol=1e-9)
    multi = train(**TASKS["multiclass"])[0]
    with pytest.raises(ValueError, match="3 raw scores for each row; only one can be the answer"):
        cstc.from_lightgbm(multi, raw_score=True)
    one_against_all = train(**TASKS["multiclass"] | {"objective": "multiclassova"})[0]
    with pytest.raises(ValueError, match=r"'multiclassova.* gives 3 scores; of those, cstc knows 'multiclass'"):
        cstc.from_lightgbm(one_against_all)
    with pytest.raises(ValueError, match="classes has 2 entries, the booster has 3 classes"):
        cstc.from_lightgbm(multi, classes=["a", "b"])
    with pytest.raises(ValueError, match="costs has 3 entries, X has 5 features"):
        cstc.from_lightgbm(multi, costs=[1, 2, 3])
    linear = train("regression", missing=False, linear_tree=True)[0]
    with pytest.raises(ValueError, match="linear trees"):
        cstc.from_lightgbm(linear)


def test_steepness_of_the_logistic_function():
    booster, X = train("binary", labels=lambda s: (s > 0.5).astype(int), sigmoid=2.5)
    model = cstc.from_lightgbm(booster)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], booster.predict(X), rtol=1e-9)
