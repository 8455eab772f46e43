"""Predictions on demand: the laboratory is asked only where its answer is worth the price.

    python examples/on_demand.py        (needs pandas)

scikit-learn's diabetes data with a bill: four measurements at 1 each, six laboratory values that share one blood draw.
The sources below only look into a table; in practice they ask a database, a service or a person.
"""

from __future__ import annotations

import time

import pandas as pd
from sklearn.model_selection import train_test_split

from cstc import CSTCRegressor
from cstc.datasets import load_diabetes_with_costs
from cstc.serving import Answer, OnDemandPredictor, extractor


def show(title: str, answer: Answer) -> None:
    """The answer, and why each item was bought."""
    print(f"\n{title}: {answer.value:.0f} for {answer.cost:g} ({answer.status})")
    if answer.reason:
        print(f"  {answer.reason}")
    for step in answer.trail:
        if step["event"] == "gate":
            print(f"  node {step['node']}: {step['margin']:.3f} against {step['threshold']:.3f}, on to {step['to']}")
        else:
            items = ", ".join(f"{item} {price:g}" for item, price in step["items"].items()) or "nothing more to pay"
            latency = "" if step["latency"] is None else f" in {1000 * step['latency']:.1f} ms"
            print(f"  node {step['node']}: {step['source'] or 'at hand'}{latency}: {step['outcome']}; {items}")


def main() -> None:
    X, y, names, costs = load_diabetes_with_costs()
    patients = pd.DataFrame(X, columns=names)
    train, test, y_train, y_test = train_test_split(patients, y, random_state=0)
    model = CSTCRegressor(costs=costs, cost_weight=30, random_state=0).fit(train, y_train)

    @extractor(provides=["age", "sex", "bmi", "bp"], instant=True)
    def measure(patient):
        return patients.loc[patient, ["age", "sex", "bmi", "bp"]].to_dict()

    @extractor(provides=["s1", "s2", "s3", "s4", "s5", "s6"], timeout=2.0)
    def laboratory(patient):
        time.sleep(0.005)
        return patients.loc[patient, ["s1", "s2", "s3", "s4", "s5", "s6"]].to_dict()

    with OnDemandPredictor(model, [measure, laboratory]) as predictor:
        first = test.index[0]
        answer = predictor.predict(first)
        show(f"Patient {first}", answer)
        show("The same, blood was drawn before", predictor.predict(first, paid=["blood draw"]))
        show("The same for half the price", predictor.predict(first, budget=answer.cost / 2))

        predictor.counters.reset()
        answers = predictor.predict_many(test.index)
        counts = predictor.counters.as_dict()

    spent = sum(answer.cost for answer in answers)
    whole = len(answers) * model.costs_.full_cost
    error = sum((answer.value - truth) ** 2 for answer, truth in zip(answers, y_test, strict=True)) / len(answers)
    print(f"\n{len(answers)} patients: {spent:.0f} spent; all features of all would cost {whole:.0f}")
    print(f"saved: {1 - spent / whole:.0%}")
    print(f"mean squared error {error:.0f}, {y_test.var():.0f} without any feature")
    for item, count in counts["items"].items():
        print(f"  {item:<11} bought for {count['bought']:>3} patients, {count['spend']:>4g} in all")


if __name__ == "__main__":
    main()
