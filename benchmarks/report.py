"""How large the page of a frontier is and how long it takes: 100 features, 10 models, 1,500 test rows.

    python benchmarks/report.py

The data are made up, prices are drawn from a log-normal distribution.  Time is that of `report_page` alone, on however
many cores numpy takes (``OMP_NUM_THREADS=1`` for one); the second line leaves the labels out, and with them the loss
that items save.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
from sklearn.datasets import make_classification

from cstc import CSTCClassifier, Frontier
from cstc.report import report_page

N_ROWS, N_TEST, N_FEATURES, N_MODELS = 6000, 1500, 100, 10


def main() -> None:
    X, y = make_classification(N_ROWS, N_FEATURES, n_informative=30, n_redundant=30, class_sep=0.5, random_state=0)
    prices = np.random.default_rng(0).lognormal(1, 1, N_FEATURES).round(2)
    estimator = CSTCClassifier(costs=prices, n_weak_learners=60, random_state=0)
    frontier = Frontier(estimator, n_weights=14).fit(X[N_TEST:], y[N_TEST:])
    saved = SimpleNamespace(
        models=[model.model_ for model in frontier.tried_models_[-N_MODELS:]],
        table=list(frontier.tried_)[-N_MODELS:],
        quality_name=frontier.quality_name_,
    )
    most = max(row["items"] for row in saved.table)
    print(f"{len(saved.models)} models, which buy up to {most} items; {N_TEST:,} test rows")
    for name, rows in (("with labels", {"y": y[:N_TEST]}), ("without", {})):
        start = time.perf_counter()
        page = report_page(saved, X=X[:N_TEST], **rows)
        took = time.perf_counter() - start
        print(f"{name:12} {len(page.encode('utf-8')) / 1e6:.2f} MB in {took:.1f} s")


if __name__ == "__main__":
    main()
