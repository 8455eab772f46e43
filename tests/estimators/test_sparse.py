"""Sparse matrices: the same model and the same predictions as with their dense form, which nobody makes."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sparse
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import cstc
import cstc.model.fitted as fitted_module
import cstc.model.native as native
from cstc import CostModel, CSTCClassifier, CSTCRanker, CSTCRegressor, Exact, Frontier, Paper, matrix
from cstc.baselines import CEGB, EarlyExit, SingleClassifier, StageWiseRegression
from cstc.model import Schema

SMALL = {"n_weak_learners": 8, "learning_rate": 0.4, "n_jobs": 1, "random_state": 0, "costs": [1, 2, 3, 4, 5, 6]}
ESTIMATORS = [CSTCRegressor, CSTCClassifier, CSTCRanker]
FORMATS = {
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
    "coo": sparse.coo_array,
    "csr matrix": sparse.csr_matrix,
    "csc matrix": sparse.csc_matrix,
    "coo matrix": sparse.coo_matrix,
}
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)
each_format = pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS.keys())


def make_data(n=300, seed=0, missing=0.03):
    """Mostly zeros, some missing values; the first columns matter."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, 6)) < 0.6, 0.0, rng.normal(size=(n, 6)))
    score = X[:, 0] + X[:, 1] * X[:, 2] + (X[:, 3] > 0)
    X[rng.random(X.shape) < missing] = np.nan
    return X, score + 0.2 * rng.normal(size=n)


def arguments(estimator, score):
    if estimator is CSTCRegressor:
        return {"y": score}
    if estimator is CSTCClassifier:
        return {"y": np.array(["no", "yes"])[(score > 0.3).astype(int)]}
    return {"y": np.clip(np.round(score + 1), 0, 4), "qid": np.arange(len(score)) // 10}


def same_model(one, other, X):
    """By what both say of dense rows."""
    np.testing.assert_array_equal(one.model_.decision_function(X), other.model_.decision_function(X))
    np.testing.assert_array_equal(one.model_.predict_cost(X), other.model_.predict_cost(X))
    assert one.mean_cost_ == other.mean_cost_


def same_answers(model, X, S):
    """Whatever a model says of rows, to the last bit."""
    for name in ("decision_function", "predict", "predict_proba", "predict_cost", "apply", "bought_items"):
        if not hasattr(model, name) or (name == "predict_proba" and not isinstance(model, CSTCClassifier)):
            continue
        np.testing.assert_array_equal(getattr(model, name)(S), getattr(model, name)(X), err_msg=name)
    np.testing.assert_array_equal(model.predict_cost(S, "learner"), model.predict_cost(X, "learner"))


@pytest.fixture
def never_dense_as_a_whole(monkeypatch):
    """At most a block of rows is made dense."""
    monkeypatch.setattr(matrix, "MOST_ROWS", 50)
    largest = []
    for kind in (sparse.csr_array, sparse.csr_matrix):
        plain = kind.toarray

        def toarray(self, *args, plain=plain, **kwargs):
            largest.append(self.shape[0])
            return plain(self, *args, **kwargs)

        monkeypatch.setattr(kind, "toarray", toarray)
    for kind in (sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.csc_matrix):
        monkeypatch.setattr(kind, "todense", None)
    return largest


@each_estimator
@pytest.mark.parametrize("method", ["experts", Paper(depth=2, max_iter=5)], ids=["experts", "paper"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_same_model_as_on_the_dense_form(estimator, method, never_dense_as_a_whole):
    X, score = make_data()
    given = arguments(estimator, score)
    model = estimator(**SMALL, method=method).fit(X, **given)
    other = estimator(**SMALL, method=method).fit(sparse.csr_array(X), **given)
    same_model(model, other, X)
    same_answers(other, X, sparse.csr_array(X))
    assert model.score(X, **given) == other.score(sparse.csr_array(X), **given)
    assert max(never_dense_as_a_whole) <= 50
    np.testing.assert_array_equal(other.model_.schema.may_miss, np.isnan(X).any(axis=0))


@each_format
def test_every_format(make):
    X, score = make_data()
    given = arguments(CSTCClassifier, score)
    model = CSTCClassifier(**SMALL).fit(X, **given)
    S = make(X)
    before = S.copy()
    same_model(model, CSTCClassifier(**SMALL).fit(S, **given), X)
    same_answers(model, X, S)
    assert type(S) is type(before)
    assert S.dtype == before.dtype
    np.testing.assert_array_equal(S.toarray(), before.toarray())


@pytest.mark.parametrize("compiled", [True, False])
def test_loaded_models_take_sparse_rows(tmp_path, monkeypatch, compiled):
    if not compiled:
        monkeypatch.setattr(native, "_native", None)
    X, score = make_data()
    model = CSTCClassifier(**SMALL).fit(X, **arguments(CSTCClassifier, score))
    model.save(tmp_path / "model.cstc")
    loaded = cstc.load(tmp_path / "model.cstc")
    for make in FORMATS.values():
        same_answers(loaded, X, make(X))
    np.testing.assert_array_equal(loaded.predict_proba(sparse.coo_array(X)), model.predict_proba(X))
    for wrong, message in [
        (sparse.csr_array(X[:, :4]), "X has 4 columns; the model has 6"),
        (sparse.csr_array(np.full((1, 6), np.inf)), "X holds an infinite value"),
        (sparse.coo_array(X[0]), "1 dimension"),
    ]:
        with pytest.raises(ValueError, match=message):
            loaded.predict(wrong)


def test_columns_that_no_split_looks_at_are_never_made_dense(monkeypatch):
    """A hundred thousand columns of which six are looked at."""
    X, score = make_data(missing=0.0)
    fitted = CSTCRegressor(**SMALL).fit(X, score).model_
    more = 100_000
    wide = replace(
        fitted,
        costs=replace(fitted.costs, feature_items=np.vstack([np.eye(6, dtype=bool), np.zeros((more, 6), dtype=bool)])),
        schema=Schema([f"x{j}" for j in range(6 + more)], {}, np.zeros(6 + more, dtype=bool)),
    )
    S = sparse.hstack([sparse.csr_array(X), sparse.eye_array(len(X), more)])
    widths, plain = [], matrix.dense
    for module in (matrix, fitted_module):  # the compiled walk asks the one, numpy's walk the other
        monkeypatch.setattr(module, "dense", lambda X, *rows: widths.append(X.shape[1]) or plain(X, *rows))
    for compiled in (native._native, None):
        monkeypatch.setattr(native, "_native", compiled)
        np.testing.assert_array_equal(wide.predict(S), fitted.predict(X))
        np.testing.assert_array_equal(wide.bought_items(S), fitted.bought_items(X))
    assert 0 < max(widths) <= 6


def test_groups_and_lazy_experts():
    """Rows that need different features: the partition and what buys on its branches see sparse rows too."""
    rng = np.random.default_rng(0)
    n = 1600
    X = np.where(rng.random((n, 6)) < 0.3, 0.0, rng.normal(size=(n, 6)))
    y = np.choose((X[:, 0] > 0) + 2 * (X[:, 1] > 0), X[:, 2:].T)
    parameters = SMALL | {"costs": [0.01, 0.01, 10, 10, 10, 10], "cost_weight": 0.01, "n_weak_learners": 20}
    model = CSTCRegressor(**parameters).fit(X, y)
    other = CSTCRegressor(**parameters).fit(sparse.csc_array(X), y)
    assert [row.name for row in model.candidates_ if row.name.endswith(" branches")]
    same_model(model, other, X)
    assert repr(model.candidates_) == repr(other.candidates_)  # losses that nobody computed are NaN


def test_rows_that_are_binned_once_for_all_folds(monkeypatch):
    monkeypatch.setattr("cstc.lightgbm_engine.MANY_ROWS", 200)
    X, score = make_data()
    same_model(CSTCRegressor(**SMALL).fit(X, score), CSTCRegressor(**SMALL).fit(sparse.csr_array(X), score), X)


def test_weights_prices_of_trees_and_categories():
    rng = np.random.default_rng(0)
    X, score = make_data()
    X[:, 5] = rng.integers(0, 4, size=len(X))
    weights = rng.integers(0, 3, size=len(X))
    costs = CostModel({f"x{j}": j + 1.0 for j in range(6)}, evaluation=0.01)
    parameters = SMALL | {"costs": costs, "categorical_features": [5]}
    given = {"y": score, "sample_weight": weights}
    same_model(
        CSTCRegressor(**parameters).fit(X, **given), CSTCRegressor(**parameters).fit(sparse.coo_array(X), **given), X
    )
    X[np.argmax(weights), 5] = -1
    with pytest.raises(ValueError, match="column 'x5' is categorical and holds the code -1"):
        CSTCRegressor(**parameters).fit(sparse.csr_array(X), **given)


def test_numbers_of_other_types():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(300, 6))
    y = X[:, 0] + X[:, 1] * (X[:, 2] > 0)
    for dtype in (np.int8, np.int64, np.uint16, bool, np.float32):
        typed = X.astype(dtype)
        model = CSTCRegressor(**SMALL).fit(typed, y)
        same_model(model, CSTCRegressor(**SMALL).fit(sparse.csr_array(typed), y), typed.astype(float))
        same_answers(model, typed, sparse.csc_array(typed))
        same_answers(model.model_, typed, sparse.csc_array(typed))


def test_indices_of_64_bits():
    X, score = make_data()
    S = sparse.csr_array(X)
    S.indices, S.indptr = S.indices.astype(np.int64), S.indptr.astype(np.int64)
    model = CSTCRegressor(**SMALL).fit(X, score)
    same_model(model, CSTCRegressor(**SMALL).fit(S, score), X)
    same_answers(model, X, S)


def test_out_of_a_column_transformer():
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame({"town": rng.choice([f"town {k}" for k in range(30)], size=n), "age": rng.normal(size=n)})
    y = (frame["town"].str.len() + frame["age"] > 6).astype(int)
    encoder = ColumnTransformer(
        [("town", OneHotEncoder(handle_unknown="ignore"), ["town"])], remainder="passthrough", sparse_threshold=1.0
    )
    estimator = CSTCClassifier(n_weak_learners=8, n_jobs=1, random_state=0)
    assert matrix.is_sparse(encoder.fit_transform(frame))
    pipeline = make_pipeline(encoder, estimator).fit(frame, y)
    dense = make_pipeline(encoder.set_params(sparse_threshold=0.0), estimator).fit(frame, y)
    np.testing.assert_array_equal(pipeline.predict_proba(frame), dense.predict_proba(frame))
    assert pipeline.score(frame, y) > 0.8
    assert len(cross_val_predict(pipeline, frame, y, cv=3)) == n


@pytest.mark.parametrize("own", [True, False], ids=["rows of its own", "rows held out"])
def test_frontiers(own, tmp_path):
    X, score = make_data()
    given = {"X_val": X[200:], "y_val": score[200:]} if own else {}
    options = {"n_weights": 4}
    dense = Frontier(CSTCRegressor(**SMALL), **options).fit(X[:200], score[:200], **given)
    given = {"X_val": sparse.csc_array(X[200:]), "y_val": score[200:]} if own else {}
    frontier = Frontier(CSTCRegressor(**SMALL), checkpoint=tmp_path / "models", **options)
    frontier.fit(sparse.coo_array(X[:200]), score[:200], **given)
    assert frontier.table_ == dense.table_
    again = Frontier(CSTCRegressor(**SMALL), checkpoint=tmp_path / "models", **options)
    assert again.fit(sparse.csr_array(X[:200]), score[:200], **given).table_ == dense.table_
    assert again.n_ensembles_ == 0
    changed = sparse.csr_array(np.where(X[:200] == X[3, 0], 9.0, X[:200]))
    with pytest.raises(ValueError, match="checkpoint"):
        again.fit(changed, score[:200], **given)


def test_rankers_along_a_frontier():
    X, score = make_data()
    given = arguments(CSTCRanker, score)
    dense = Frontier(CSTCRanker(**SMALL), n_weights=3).fit(X, **given)
    assert Frontier(CSTCRanker(**SMALL), n_weights=3).fit(sparse.csc_matrix(X), **given).table_ == dense.table_


@pytest.mark.parametrize("system", [StageWiseRegression, CEGB, SingleClassifier, EarlyExit])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_baselines(system):
    X, score = make_data()
    given = arguments(CSTCRanker, score) if system is EarlyExit else {"y": score}
    more = {"exits": (0.2, 5, 2)} if system is EarlyExit else {}
    model = system(**SMALL, **more).fit(X, **given)
    other = system(**SMALL, **more).fit(sparse.csr_array(X), **given)
    queries = {"qid": given["qid"]} if "qid" in given else {}
    for S in (sparse.csr_array(X), sparse.coo_array(X)):
        np.testing.assert_array_equal(other.predict(S, **queries), model.predict(X, **queries))
        np.testing.assert_array_equal(other.predict_cost(S, **queries), model.predict_cost(X, **queries))


# -- what is refused -------------------------------------------------------------------------------------------------


@each_estimator
@pytest.mark.parametrize("method", ["auto", Exact(), Paper()], ids=["auto", "exact", "paper"])
def test_plain_inputs_need_a_dense_matrix(estimator, method):
    X, score = make_data(missing=0.0)
    model = estimator(weak_learners="identity", method=method)
    with pytest.raises(ValueError, match=r"X is a sparse matrix, .* needs a dense one; give X\.toarray\(\)"):
        model.fit(sparse.csr_array(X), **arguments(estimator, score))
    assert not model.__sklearn_tags__().input_tags.sparse
    assert estimator().__sklearn_tags__().input_tags.sparse


def test_baselines_on_plain_inputs_need_a_dense_matrix():
    X, score = make_data(missing=0.0)
    with pytest.raises(ValueError, match="X is a sparse matrix"):
        SingleClassifier(weak_learners="identity").fit(sparse.csr_array(X), score)


@each_estimator
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda X: sparse.csr_array(np.where(X == X[0, 0], np.inf, X)), "infinity"),
        (lambda X: sparse.coo_array(X[:, 0]), "X is a sparse array with 1 dimension"),
        (lambda X: sparse.csr_array(X[:10]), "inconsistent numbers of samples"),
        (lambda X: sparse.csr_array(X.astype(complex)), "X is a sparse matrix of complex128"),
        (lambda X: sparse.csr_array((0, 6)), "0 sample"),
        (lambda X: sparse.csr_array((len(X), 0)), "0 feature"),
    ],
    ids=["infinity", "one dimension", "fewer rows", "complex", "no rows", "no columns"],
)
def test_bad_matrices_in_fit(estimator, spoil, message):
    X, score = make_data()
    X[0, 0] = 1.25
    with pytest.raises(ValueError, match=message):
        estimator(**SMALL).fit(spoil(X), **arguments(estimator, score))


def test_text_is_refused():
    words = sparse.coo_array((300, 6))
    words.data, words.coords = np.array(["a"], dtype=object), (np.array([0]), np.array([0]))
    X, score = make_data()
    with pytest.raises(ValueError, match="X is a sparse matrix of object, which is not a number"):
        CSTCRegressor(**SMALL).fit(words, score)
    with pytest.raises(ValueError, match="X is a sparse matrix of object, which is not a number"):
        CSTCRegressor(**SMALL).fit(X, score).predict(words)


def test_bad_matrices_in_predict():
    X, score = make_data()
    model = CSTCRegressor(**SMALL).fit(sparse.csr_array(X), score)
    for name in ("predict", "predict_cost", "apply"):
        with pytest.raises(ValueError, match="X has 5 features, but CSTCRegressor is expecting 6"):
            getattr(model, name)(sparse.csr_array(X[:, :5]))
        with pytest.raises(ValueError, match="infinity"):
            getattr(model, name)(sparse.csr_array(np.full((1, 6), np.inf)))
    named = CSTCRegressor(**SMALL | {"costs": None}).fit(pd.DataFrame(X, columns=list("abcdef")), score)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(named.predict(sparse.csr_array(X)), named.model_.predict(X))
