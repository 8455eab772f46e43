"""
Search ranking
==============

**Which documents are worth a second system's time?** A search engine ranks 20 documents for each query. What stands
in the index is nearly free; to match the text of a document takes half a millisecond, and other systems are asked how
fresh a news page is, what a shop offers, or how long a video is watched, for 2 or 3 milliseconds each. All of it takes
8.55 ms for each document. Here the price of a feature is its time.

The data is made up: freshness matters for news only, offers for shops only, and watch time for videos only. The model
has to find that out.
"""

# %%
# Documents and queries
# ---------------------

# sphinx_gallery_thumbnail_number = 2
import lightgbm
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from cstc import CSTCRanker, Frontier
from cstc.metrics import ndcg
from cstc.plotting import CostQualityDisplay

rng = np.random.default_rng(0)
n_queries, n_documents = 320, 20
n = n_queries * n_documents
query = np.repeat(np.arange(n_queries), n_documents)
kind = rng.choice(["news", "shop", "video", "page"], n, p=[0.2, 0.2, 0.2, 0.4])
match, fresh, offers, watched = rng.normal(size=(4, n))
relevance = match + 0.5 * rng.normal(size=n)
for name, matters in (("news", fresh), ("shop", offers), ("video", watched)):
    relevance += np.where(kind == name, 1.6 * matters, 0)
grade = np.digitize(relevance, np.quantile(relevance, [0.5, 0.75, 0.9, 0.97]))  # 0 to 4


def seen(value, noise):
    """A feature shows what matters up to an error."""
    return value + noise * rng.normal(size=n)


documents = pd.DataFrame(
    {
        "is news": kind == "news",
        "is shop": kind == "shop",
        "is video": kind == "video",
        "length": rng.normal(size=n),
        "title match": seen(match, 0.8),
        "text match": seen(match, 0.3),
        "freshness": seen(fresh, 0.3),
        "offers": seen(offers, 0.3),
        "watch time": seen(watched, 0.3),
    }
).astype(float)
milliseconds = {"is news": 0.01, "is shop": 0.01, "is video": 0.01, "length": 0.01, "title match": 0.01}
milliseconds |= {"text match": 0.5, "freshness": 2.0, "offers": 3.0, "watch time": 3.0}

# %%
# Models from free to full
# ------------------------
# :class:`~cstc.CSTCRanker` learns grades, and is judged by NDCG@5. Whole queries are kept apart: some teach, some
# choose between models, and some are looked at only at the end.

train, choose, test = query < 160, (query >= 160) & (query < 220), query >= 220
frontier = Frontier(CSTCRanker(costs=milliseconds, n_weak_learners=80, random_state=0), n_weights=8)
frontier.fit(
    documents[train],
    grade[train],
    qid=query[train],
    X_val=documents[choose],
    y_val=grade[choose],
    qid_val=query[choose],
)
print(frontier.table_)

# %%
# Beside it stands LightGBM's own ranker, which asks every system about every document.

plain = lightgbm.LGBMRanker(n_estimators=80, random_state=0, verbose=-1)
plain.fit(documents[train], grade[train], group=np.bincount(query[train])[np.unique(query[train])])
all_of_it = sum(milliseconds.values())


def score(ranker):
    """NDCG@5 on the test queries."""
    return ndcg(grade[test], ranker.predict(documents[test]), query[test], k=5)


CostQualityDisplay.from_predictions(
    [[each.predict_cost(documents[test]).mean() for each in frontier.models_], [all_of_it]],
    [[score(each) for each in frontier.models_], [score(plain)]],
    ["models of the frontier", "LightGBM's ranker, all features"],
    cost_name="milliseconds for a document, on average",
    quality_name="NDCG@5, test queries",
)

# %%
# What is asked of whom
# ---------------------
# The model for 3 ms a document. For each kind of document, the share that buys each feature: the model found out
# which system is worth asking about which kind, though nobody told it.

model = frontier.best(mean_cost=3)
bought = model.model_.bought_items(documents[test].to_numpy())
items = list(model.costs_.item_names)
kinds = ["news", "shop", "video", "page"]
shares = np.array([bought[kind[test] == name].mean(axis=0) for name in kinds])

figure, ax = plt.subplots(figsize=(8, 3), layout="constrained")
ax.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
ax.set_xticks(range(len(items)), items, rotation=30, ha="right")
ax.set_yticks(range(len(kinds)), kinds)
for row, column in np.ndindex(shares.shape):
    share = shares[row, column]
    ax.text(column, row, f"{share:.0%}", ha="center", va="center", color="white" if share > 0.6 else "black")
ax.set_title("share of documents that buy a feature")

# %%
# Time saved
# ----------

cost = model.predict_cost(documents[test])
print(f"this model           NDCG@5 {score(model):.3f} for {cost.mean():.2f} ms a document")
print(f"LightGBM's ranker    NDCG@5 {score(plain):.3f} for {all_of_it:.2f} ms a document")

# %%
# One query, document by document: how much time went into each.

one = documents[query == 250]
table = pd.DataFrame({"kind": kind[query == 250], "score": model.predict(one), "ms": model.predict_cost(one)})
print(table.sort_values("score", ascending=False).head(8).to_string(index=False, float_format="{:.2f}".format))

# %%
# Prices from the clock
# ---------------------
# Prices need not be guessed: :func:`cstc.serving.measure_costs` calls your own sources and takes their median times
# (:doc:`/serving`). Real ranking data in the formats of LETOR, MSLR and Yahoo is read by
# :func:`cstc.datasets.load_letor` and :func:`cstc.datasets.load_yahoo`.
