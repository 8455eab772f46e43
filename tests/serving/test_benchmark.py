"""The benchmark of slow sources runs, and what it calls by hand are the waves of the predictor."""

import numpy as np

from serving.test_faults import load_benchmark


def test_slow_sources(capsys):
    benchmark = load_benchmark()
    X, _, costs = benchmark.make_data(500)
    model = benchmark.cascade(X, costs, benchmark.N_STAGES)
    assert (model.shape.upper[:-1] == np.arange(1, benchmark.N_STAGES)).all()
    benchmark.with_slow_sources({benchmark.CASCADE: model}, X, 2)
    lines = [line for line in capsys.readouterr().out.splitlines() if " us" in line]
    assert len(lines) == 2 * len(benchmark.SETTINGS)


def test_one_wave_for_each_node_of_the_cascade():
    benchmark = load_benchmark()
    X, _, costs = benchmark.make_data(500)
    model = benchmark.cascade(X, costs, benchmark.N_STAGES)
    sources = benchmark.sources_over(X.tolist(), benchmark.groups_of(benchmark.N_STAGES))
    with benchmark.OnDemandPredictor(model, sources) as predictor:
        for i in range(50):
            answer = predictor.predict(i)
            assert [len(wave) for wave in benchmark.waves_of(answer)] == [1] * len(answer.path)
