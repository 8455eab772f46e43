"""
Laboratory tests
================

**Which samples need the thorough look?** A laboratory measures the nuclei of cells under a microscope. A first look
gives means, a second one how much nuclei differ, and a search for the worst cells takes longest. Each look has a
price, and each value that is read off has a small one. Everything for every sample costs 67. This tutorial finds a
model for a budget, looks at what it buys for whom, and asks why one sample got the whole programme.

The data is scikit-learn's breast cancer set, 569 samples with 30 values each. The prices are an illustration.
"""

# %%
# The bill
# --------
# A feature requires items, and an item is paid once for each sample: a second value of the same look is cheaper than
# the first.

# sphinx_gallery_thumbnail_number = 2
import tempfile
from pathlib import Path

import lightgbm
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

import cstc
from cstc import CostModel, CSTCClassifier, Frontier
from cstc.plotting import CostQualityDisplay, ExplanationDisplay, TreeDisplay

data = load_breast_cancer(as_frame=True)
samples, diagnosis = data.data, data.target.map({0: "malignant", 1: "benign"})

prices = {"first look": 2.0, "second look": 5.0, "search for the worst": 10.0}
requires = {}
for name in samples.columns:  # "mean radius", "radius error", "worst radius", ...
    if "worst" in name:
        prices[name], requires[name] = 3.0, ["search for the worst"]
    else:
        prices[name], requires[name] = 1.0, ["first look" if "mean" in name else "second look"]
costs = CostModel(prices, requires)

print("one value of the first look:", costs.price_of(["mean radius"]))
print("two of them:                ", costs.price_of(["mean radius", "mean texture"]))
print("everything:                 ", costs.price_of(samples.columns))

# %%
# Models from free to full
# ------------------------
# Nobody knows beforehand what accuracy is worth. A :class:`~cstc.Frontier` fits a model for each of several answers
# to that question, and keeps those that no other model beats in cost and quality alike. A part of the training rows
# is held out to judge them.

train, test, y_train, y_test = train_test_split(
    samples, diagnosis, test_size=0.3, stratify=diagnosis, random_state=0
)
frontier = Frontier(CSTCClassifier(costs=costs, random_state=0), n_weights=9).fit(train, y_train)
print(frontier.table_)

# %%
# Say that a sample may cost 17 on average. Light bars are standard errors: with so few samples, much of what looks
# like a difference between models is noise, and the table says so.

frontier.plot(mean_cost=17)

# %%
# The chosen model
# ----------------
# Every node of the tree predicts, and decides whether more is worth its price. The width of a path says how many
# samples take it, and each node lists what it buys.

model = frontier.best(mean_cost=17)
TreeDisplay.from_estimator(model, test, y_test)

# %%
# The figures of the frontier chose the model, so they are slightly too good. Samples that nobody has looked at yet
# tell what to expect. Beside it stands plain LightGBM, which needs all 30 values of every sample.

plain = lightgbm.LGBMClassifier(random_state=0, verbose=-1).fit(train, y_train)
malignant = y_test == "malignant"


def auc(fitted):
    """How well the probability of "malignant" sorts the test samples."""
    column = list(fitted.classes_).index("malignant")
    return roc_auc_score(malignant, fitted.predict_proba(test)[:, column])


paid = model.predict_cost(test)
print(f"this model   AUC {auc(model):.3f} for {paid.mean():.1f} on average, from {paid.min():g} to {paid.max():g}")
print(f"LightGBM     AUC {auc(plain):.3f} for {costs.price_of(samples.columns):g}, every sample")

# %%
# All models of the frontier that buy anything, on the test samples:

buying = frontier.models_[1:]  # all but the free one
CostQualityDisplay.from_predictions(
    [[each.predict_cost(test).mean() for each in buying], [costs.price_of(samples.columns)]],
    [[auc(each) for each in buying], [auc(plain)]],
    ["models of the frontier", "plain LightGBM, all values"],
    quality_name="AUC, test samples",
)

# %%
# Why this sample?
# ----------------
# One of those that paid most, step by step: what was bought, what it was expected to be worth, how the prediction
# moved, and why it stopped there.

explanation = model.explain(test.iloc[[int(paid.argmax())]])
print(explanation)

# %%
# The same as a picture: the probabilities against the money spent.

ExplanationDisplay.from_explanation(explanation)

# %%
# What each item is good for
# --------------------------
# How often it is bought, what is spent on it for each sample, and what the samples would lose without it.

print(model.item_importance(test, y_test))

# %%
# Into use
# --------
# A model file is plain data: loading one needs numpy alone, and executes nothing. From here, :doc:`/serving` fetches
# values on demand in a Python program, and :doc:`/service` does so over HTTP.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.cstc"
    model.save(path)
    again = cstc.load(path)
    print(f"{path.stat().st_size / 1024:.0f} KiB")
assert (again.predict(test) == model.predict(test)).all()
