"""What a predictor counts, as numbers and as Prometheus' text."""

import re
import threading

import numpy as np
import pytest

from cstc.model import Training
from cstc.serving import Counters, OnDemandPredictor, extractor
from cstc.serving.drift import Drift
from cstc.serving.histogram import cost_bounds
from serving.worlds import NAMES, Sources, random_world


def serve(n=40, **options):
    rng = np.random.default_rng(1)
    world = random_world(rng, "binary", n)
    sources = Sources(rng, world.rows, instant=True)
    predictor = OnDemandPredictor(world.model, sources.extractors)
    answers = [predictor.predict(i, **options) for i in range(n)]
    return world, sources, predictor, answers


def test_counters_add_up():
    world, sources, predictor, answers = serve()
    early = [predictor.predict(i, budget=0.0) for i in range(5)]
    counts = predictor.counters.as_dict()
    assert counts["answers"] == 45
    assert counts["early_stops"] == sum(not answer.complete for answer in early)
    assert counts["spend"] == pytest.approx(sum(answer.cost for answer in answers + early))
    bought = world.model.bought_items(world.X).sum(axis=0)
    for r, name in enumerate(world.model.costs.item_names):
        if bought[r]:
            assert counts["items"][name]["bought"] == bought[r]
            assert counts["items"][name]["spend"] == pytest.approx(bought[r] * world.model.costs.prices[r])
        else:
            assert name not in counts["items"]
    items = sum(item["spend"] for item in counts["items"].values())
    assert counts["spend"] == pytest.approx(items + world.model.costs.evaluation * counts["weak_learners_evaluated"])
    mix = {entry["terminal"]: entry["answers"] for entry in counts["paths"] if entry["terminal"] is not None}
    terminals, times = np.unique(world.model.apply(world.X), return_counts=True)
    complete_early = sum(answer.complete for answer in early)
    assert sum(mix.values()) == times.sum() + complete_early
    assert set(mix) >= set(terminals.tolist())
    assert sum(source["calls"] for source in counts["sources"].values()) == len(sources.calls)
    assert counts["seconds"] > 0


def test_failures_are_counted_by_kind():
    world = random_world(np.random.default_rng(1), "regression", 1, missing=False)
    results = iter([OSError("gone"), {}, dict.fromkeys(NAMES, "text"), world.rows[0]])

    @extractor(provides=NAMES, retries=3)
    def moody(row):
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    with OnDemandPredictor(world.model, [moody]) as predictor:
        answer = predictor.predict(0)
    assert answer.complete
    source = predictor.counters.as_dict()["sources"]["moody"]
    assert (source["calls"], source["failures"]) == (4, {"error": 1, "nonsense": 2})
    outcomes = [entry["outcome"] for entry in answer.trail if entry.get("source") == "moody"]
    assert [outcome.split(":")[0] for outcome in outcomes[:4]] == ["failed, tried again"] * 3 + ["ok"]
    items = [item for entry in answer.trail for item in entry.get("items", ())]
    assert len(items) == len(set(items))  # three calls more, but nothing is paid twice


def test_prometheus_text():
    _, _, predictor, _ = serve()
    text = predictor.counters.prometheus()
    sample = re.compile(r'^[a-z_]+(\{([a-z]+="([^"\\\n]|\\["\\n])*",?)+\})? -?[0-9.e+-]+$')
    names = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert kind in ("counter", "gauge", "histogram")
            names |= {f"{name}{end}" for end in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name}
        elif not line.startswith("# HELP "):
            assert sample.match(line), line
            assert line.split("{")[0].split()[0] in names
    assert 'cstc_answers_total{status="complete"} 40' in text
    assert text.endswith("\n")
    assert "shop_answers_total" in predictor.counters.prometheus(prefix="shop")


def test_latency_and_cost_have_histograms():
    world, _, predictor, answers = serve()
    counts = predictor.counters.as_dict()
    costs = [answer.cost for answer in answers]
    assert counts["cost"]["count"] == len(costs)
    assert counts["cost"]["sum"] == pytest.approx(sum(costs))
    for bound, count in counts["cost"]["up_to"].items():
        assert count == sum(cost <= bound for cost in costs)
    assert max(counts["cost"]["up_to"]) >= world.model.terminal_costs().max()
    for bound, count in counts["latency"]["up_to"].items():
        assert count == sum(answer.seconds <= bound for answer in answers)
    lines = predictor.counters.prometheus().splitlines()
    assert "# TYPE cstc_cost histogram" in lines
    assert f'cstc_cost_bucket{{le="+Inf"}} {len(costs)}' in lines
    assert f"cstc_latency_seconds_count {len(costs)}" in lines


@pytest.mark.parametrize(
    ("highest", "bounds"),
    [
        (138.65, (0, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)),
        (100.0, (0, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)),
        (0.003, (0, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 0.001, 0.002, 0.005)),
        (1e300, (0, 1e297, 2e297, 5e297, 1e298, 2e298, 5e298, 1e299, 2e299, 5e299, 1e300)),
        (0.0, (0,)),
    ],
)
def test_bounds_of_costs_are_round_numbers(highest, bounds):
    assert cost_bounds(highest) == bounds


def test_drift_is_zero_where_nothing_drifted():
    drift = Drift(Training(mean_cost=2.0, reached=np.array([0.25, 0.75])), 2)
    assert drift.as_dict() == dict.fromkeys(["mean_spend", "spend_ratio", "path_distance"]) | {
        "answers": 0,
        "training_spend": 2.0,
    }
    drift.add([0, 1, 1, 1] * 5, [2.0] * 20)
    found = drift.as_dict()
    assert (found["spend_ratio"], found["path_distance"]) == (1.0, 0.0)


def test_drift_looks_at_the_latest_answers(monkeypatch):
    monkeypatch.setattr("cstc.serving.drift.WINDOW", 100)
    drift = Drift(Training(mean_cost=1.0, reached=np.array([1.0, 0.0])), 2)
    for _ in range(1000):
        drift.add([0], [1.0])
    for _ in range(200):
        drift.add([1], [3.0])
    assert drift.as_dict()["answers"] == 100
    assert (drift.as_dict()["spend_ratio"], drift.as_dict()["path_distance"]) == (3.0, 1.0)


def test_drift_leaves_early_stops_out_and_says_nothing_of_an_unknown_training():
    _, _, predictor, answers = serve(budget=0.0)
    drift = predictor.counters.as_dict()["drift"]
    assert drift["answers"] == sum(answer.complete for answer in answers) < len(answers)
    assert (drift["training_spend"], drift["spend_ratio"], drift["path_distance"]) == (None, None, None)
    text = predictor.counters.prometheus()
    assert "drift_spend_ratio" not in text
    assert "training" not in text.replace("divided by that of training", "")
    free = Drift(Training(mean_cost=0.0), 1)
    free.add([0], [1.0])
    assert free.as_dict()["spend_ratio"] is None


def test_labels_are_escaped():
    counters = Counters()
    counters.count_call('a "quoted"\\name\n', 1, 0.5)
    assert r'source_calls_total{source="a \"quoted\"\\name\n"} 1' in counters.prometheus()


def test_many_threads_lose_nothing():
    counters = Counters()

    def count():
        for _ in range(5000):
            counters.count_call("lab", 1, 0.5, "error")

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        counters.as_dict()
    for thread in threads:
        thread.join()
    lab = counters.as_dict()["sources"]["lab"]
    assert (lab["calls"], lab["seconds"], lab["failures"]) == (40_000, 20_000.0, {"error": 40_000})
    assert len(counters._log) == 0
    counters.reset()
    assert counters.as_dict()["sources"] == {}
