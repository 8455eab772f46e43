"""
Paid look-ups
=============

**Which applications need a paid look-up?** A lender decides on applications. The form is free, a check of the
telephone number costs 0.10, a credit agency 1.50 for all that it knows, and the statements of the bank 6. An
application that is accepted and not paid back costs 300 on average, one that is refused in error 40. This tutorial
finds the decision that costs least in all, look-ups and errors together, and serves it so that only those look-ups are
made that are worth their price.

The data is made up; the amounts are in the currency of your choice.
"""

# %%
# Applications
# ------------

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from cstc import CostModel, CSTCClassifier
from cstc.plotting import TreeDisplay
from cstc.serving import OnDemandPredictor, extractor

rng = np.random.default_rng(0)
n = 5000
trouble = rng.normal(size=n)  # what nobody sees; all that is looked up shows it, more or less
income = np.exp(rng.normal(10.3, 0.4, n) - 0.1 * trouble)
applications = pd.DataFrame(
    {
        "amount": rng.gamma(3, 2500, n).round(-2),
        "income": income.round(-2),
        "employed": rng.random(n) < 0.85 - 0.05 * trouble,
        "years of the number": rng.gamma(2, np.exp(0.8 - 0.4 * trouble)),
        "open loans": rng.poisson(np.exp(0.2 + 0.5 * trouble)),
        "late payments": rng.poisson(np.exp(-0.6 + 0.9 * trouble)),
        "years known": rng.gamma(3, np.exp(0.6 - 0.3 * trouble)),
        "lowest balance": 900 - 800 * trouble + 400 * rng.normal(size=n),
        "salary arrives": rng.random(n) < 0.9 - 0.08 * trouble,
    }
).astype(float)
burden = np.log(applications["amount"] / applications["income"]) + 1.8 * trouble
default = np.where(burden + 0.6 * rng.normal(size=n) > np.quantile(burden, 0.85), "default", "paid back")
train, test = slice(0, 3500), slice(3500, n)

# %%
# What look-ups cost, what errors cost
# ------------------------------------
# One question to the agency brings three features: they share an item, and have no price of their own. The same holds
# for the bank. With ``error_costs`` nothing has to be traded by feel: the sum is minimised.

form = ["amount", "income", "employed"]
costs = CostModel(
    prices={"telephone check": 0.10, "agency": 1.50, "bank": 6.00} | dict.fromkeys(form, 0.0),
    requires={
        "years of the number": ["telephone check"],
        "open loans": ["agency"],
        "late payments": ["agency"],
        "years known": ["agency"],
        "lowest balance": ["bank"],
        "salary arrives": ["bank"],
    },
)
errors = {"default": {"paid back": 300}, "paid back": {"default": 40}}  # the truth, then the decision
model = CSTCClassifier(costs=costs, error_costs=errors, random_state=0)
model.fit(applications[train], default[train])

# %%
# What is bought for whom
# -----------------------

TreeDisplay.from_estimator(model, applications[test], default[test])

# %%
# Against three simple rules
# --------------------------
# Everybody is accepted; the same method decides by the form alone; it decides by everything, and everything is bought
# for everybody.

nothing_asked = CSTCClassifier(error_costs=errors, costs=dict.fromkeys(form, 0), random_state=0)
nothing_asked.fit(applications[form][train], default[train])
everything = CSTCClassifier(error_costs=errors, costs=dict.fromkeys(applications.columns, 0), random_state=0)
everything.fit(applications[train], default[train])

truth = default[test]
paid = model.predict_cost(applications[test])
whole_bill = costs.price_of(applications.columns)
totals = {  # look-ups, errors
    "accept all": (0.0, 300 * np.mean(truth == "default")),
    "the form alone": (0.0, nothing_asked.total_cost(applications[form][test], truth).mean()),
    "everything for everybody": (whole_bill, everything.total_cost(applications[test], truth).mean()),
    "this model": (paid.mean(), (model.total_cost(applications[test], truth) - paid).mean()),
}
for name, (lookups, wrong) in totals.items():
    print(f"{name:<25} look-ups {lookups:5.2f}   errors {wrong:6.2f}   in all {lookups + wrong:6.2f}")

figure, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
lookups, wrong = np.array(list(totals.values())).T
ax.barh(list(totals), lookups, color="tab:orange", label="look-ups")
ax.barh(list(totals), wrong, left=lookups, color="tab:blue", label="errors")
ax.set_xlabel("mean cost of an application")
ax.invert_yaxis()
ax.legend()

# %%
# In use: look-ups on demand
# --------------------------
# A source is a function. It is called when the path of an application comes to need it, and not before. Here they
# read from the table; yours would call somebody.


@extractor(provides=["years of the number"], timeout=1.0)
def telephone(number):
    return applications["years of the number"][number]


@extractor(provides=["open loans", "late payments", "years known"], timeout=2.0)
def agency(number):
    return applications.loc[number, ["open loans", "late payments", "years known"]].to_dict()


@extractor(provides=["lowest balance", "salary arrives"], timeout=5.0)
def bank(number):
    return applications.loc[number, ["lowest balance", "salary arrives"]].to_dict()


predictor = OnDemandPredictor(model, [telephone, agency, bank], given=form)
for number in range(3500, 3506):
    answer = predictor.predict(number, known=applications.loc[number, form].to_dict())
    print(f"{number}: {answer.value!s:<10} for {answer.cost:4.2f}   bought: {', '.join(answer.items) or 'nothing'}")

# %%
# The agency is down
# ------------------
# An answer comes all the same, with the best of what is left; it says what it rests on, and what that is expected to
# lose. :doc:`/outages` has the rest.

asked = model.model_.bought_items(applications[test].to_numpy())[:, model.costs_.item_names.index("agency")]
number = applications[test].index[asked][0]  # the first that would have asked the agency
answer = predictor.predict(number, known=applications.loc[number, form].to_dict(), unavailable=["agency"])
print(f"{number}: {answer.value} for {answer.cost:g}, status {answer.status!r}")
print(answer.basis)
print(f"expected to cost {answer.expected_loss:.2f} more than with the agency")
predictor.close()
