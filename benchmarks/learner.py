"""The figures of the learner: cost along cost_weight, and nothing lost at cost_weight 0.

    python benchmarks/learner.py                    # scikit-learn's diabetes and breast cancer data
    python benchmarks/learner.py --data PATH        # also mq2007_partial below PATH: parts S1-S3 / S4 / S5

Quality is MSE (regression, ranking) or log loss (classes) on test rows; lower is better.  Cost is counted by the
branches that a row really takes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import lightgbm
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import train_test_split

from cstc import CSTCClassifier, CSTCRanker, CSTCRegressor
from cstc.datasets import load_diabetes_with_costs
from cstc.metrics import ndcg

N_SPLITS = 10
ROUNDS, EARLY_STOPPING = 200, 20  # of our estimators and of the plain ensemble alike


class Task:
    """One embedded data set with its grid of cost weights."""

    def __init__(self, name, X, y, costs, full_cost, cost_weights, classes):
        self.name, self.X, self.y, self.costs, self.full_cost = name, X, y, costs, full_cost
        self.cost_weights, self.classes = cost_weights, classes

    def split(self, state):
        parts = train_test_split(self.X, self.y, test_size=0.25, random_state=state)
        return parts[0], parts[2], parts[1], parts[3]

    def fit(self, state, cost_weight, **options):
        """Error and mean cost on the test rows of one split."""
        X, y, X_test, y_test = self.split(state)
        estimator = CSTCClassifier if self.classes else CSTCRegressor
        settings = {"costs": self.costs, "cost_weight": cost_weight, "random_state": state, "n_jobs": 1} | options
        model = estimator(**settings).fit(X, y)
        cost = float(model.predict_cost(X_test).mean())
        if self.classes:
            return log_loss(y_test, model.predict_proba(X_test)), cost
        return mean_squared_error(y_test, model.predict(X_test)), cost

    def ensemble_error(self, state):
        """Test error of the boosted ensemble itself: rounds chosen on held-out rows, then grown on all."""
        X, y, X_test, y_test = self.split(state)
        parameters = {
            "objective": "binary" if self.classes else "regression",
            "max_depth": 4,
            "num_leaves": 16,
            "verbosity": -1,
            "num_threads": 1,
        }
        kept, held, y_kept, y_held = train_test_split(X, y, test_size=0.2, random_state=state)
        rounds = boosted(parameters, kept, y_kept, held, y_held).best_iteration
        predicted = lightgbm.train(parameters, lightgbm.Dataset(X, y), rounds).predict(X_test)
        return log_loss(y_test, predicted) if self.classes else mean_squared_error(y_test, predicted)


def tasks():
    X, y, names, costs = load_diabetes_with_costs()
    by_position = costs.resolve(names)
    yield Task(
        "diabetes", X, y, _with_names(costs, names), by_position.full_cost, (0, 3, 10, 30, 100, 300, 1e3, 1e4), False
    )
    X, y = load_breast_cancer(return_X_y=True)
    yield Task("breast cancer", X, y, None, X.shape[1], (0, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 1.0), True)


def _with_names(costs, names):
    """The same bill for a matrix without column names."""
    rename = {name: f"x{j}" for j, name in enumerate(names)}
    prices = {rename.get(name, name): price for name, price in costs.prices.items()}
    return type(costs)(prices, {rename.get(name, name): items for name, items in costs.requires.items()})


def boosted(parameters, X, y, X_val, y_val):
    return lightgbm.train(
        parameters,
        lightgbm.Dataset(X, y),
        ROUNDS,
        valid_sets=[lightgbm.Dataset(X_val, y_val)],
        callbacks=[lightgbm.early_stopping(EARLY_STOPPING, verbose=False)],
    )


def along_cost_weight(task):
    print(f"\n{task.name}: mean of {N_SPLITS} splits, all features cost {task.full_cost:g}", flush=True)
    print(f"{'cost_weight':>12} {'mean cost':>10} {'step, % of full':>16} {'test error':>11}")
    before, first = None, None
    for cost_weight in task.cost_weights:
        results = np.array([task.fit(state, cost_weight) for state in range(N_SPLITS)])
        error, cost = results.mean(axis=0)
        step = "" if before is None else f"{100 * (cost - before) / task.full_cost:+.2f}"
        print(f"{cost_weight:>12g} {cost:>10.3f} {step:>16} {error:>11.4f}", flush=True)
        before, first = cost, results[:, 0] if first is None else first
    plain = np.array([task.ensemble_error(state) for state in range(N_SPLITS)])
    apart = first - plain
    print(
        f"cost_weight 0 against the boosted ensemble: {first.mean():.4f} and {plain.mean():.4f}, "
        f"{100 * apart.mean() / plain.mean():+.2f}%, paired standard error "
        f"{100 * apart.std(ddof=1) / np.sqrt(N_SPLITS) / plain.mean():.2f}%"
    )


def mq2007(path):
    data = np.load(path / "mq2007_partial" / "mq2007_partial.npz", allow_pickle=False)
    part = np.char.lstrip(data["part"].astype(str), "S").astype(int)
    rows = [np.flatnonzero(np.isin(part, parts)) for parts in ((1, 2, 3), (4,), (5,))]
    (X, y, qid), (X_val, y_val, _), (X_test, y_test, qid_test) = (
        (data["X"][at].astype(float), data["y"][at].astype(float), data["qid"][at]) for at in rows
    )
    model = CSTCRanker(costs=data["costs_derived"], cost_weight=0.0, random_state=0)
    model.fit(X, y, qid=qid)  # cross-fitted; the validation part stops the rounds of the plain ensemble
    parameters = {"objective": "regression", "max_depth": 4, "num_leaves": 16, "verbosity": -1}
    predicted = {"cstc, cost_weight 0": model.predict(X_test)}
    predicted["boosted ensemble"] = boosted(parameters, X, y, X_val, y_val).predict(X_test)
    print("\nmq2007_partial, S1-S3 / S4 / S5")
    for name, scores in predicted.items():
        print(f"{name:22} MSE {mean_squared_error(y_test, scores):.4f}  NDCG@5 {ndcg(y_test, scores, qid_test):.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with mq2007_partial")
    arguments = parser.parse_args()
    if arguments.data:
        mq2007(arguments.data)
    for task in tasks():
        along_cost_weight(task)


if __name__ == "__main__":
    main()
