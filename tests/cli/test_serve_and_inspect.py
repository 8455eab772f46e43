"""The command line: what it prints, what it refuses in names of its own options, and that it serves as told."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import cstc
from builders import N_FEATURES
from cstc import CSTCClassifier
from cstc.cli import main
from cstc.serving.http import server
from serving.worlds import NAMES, random_world

GOLDEN = Path(__file__).parent.parent / "golden" / "model-v1.cstc"
SOURCES = f"""
from cstc.serving import extractor

@extractor(provides={NAMES[:3]}, instant=True)
def first(row):
    return [0.0, 0.0, 0.0]

@extractor(provides={NAMES[3:]}, instant=True)
def second(row):
    return [0.0] * {N_FEATURES - 3}

sources = [first, second]
some = (source for source in sources)
nonsense = 3
name = "sources"
broken = [first, len]

def make():
    return [first, second]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a model and a module of extractors, as the current one; no token in the environment."""
    cstc.save(random_world(np.random.default_rng(2), "binary").model, tmp_path / "model.cstc")
    (tmp_path / "cli_sources.py").write_text(SOURCES)
    (tmp_path / "cli_needy.py").write_text("import a_module_that_is_not_there")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("CSTC_TOKEN", "MY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    for name in ("cli_sources", "cli_needy"):
        sys.modules.pop(name, None)


@pytest.fixture
def served(monkeypatch):
    """Do not serve, but keep with what the service would have been started."""
    calls = []

    def keep(predictor, *, on_ready, **options):
        calls.append((predictor, options))
        on_ready("http://127.0.0.1:1")
        predictor.close()

    monkeypatch.setattr(server, "serve", keep)
    return calls


def run(*arguments, status=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    return result.output


def test_inspect():
    text = run("inspect", GOLDEN)
    assert "3 classes: ill, unclear, well" in text
    assert "2 nodes, 2 terminals, 4 weak learners" in text
    lines = [line.strip() for line in text.splitlines()]
    assert "node 0: 1 weak learner, threshold 0" in lines
    assert "≤ terminal 0: at most 17.62 (age, blood draw, glucose)" in lines
    assert any(line.split() == ["scan", "120"] for line in lines)
    assert any(line.split()[:5] == ["glucose", "17.61", "blood", "draw,", "glucose"] for line in lines)
    assert any(line.startswith("smoker") and "category: never, now, once" in line for line in lines)


def test_inspect_names_the_model():
    lines = run("inspect", GOLDEN.with_name("model-v2.cstc")).splitlines()
    digest = hashlib.sha256(GOLDEN.with_name("model-v2.cstc").read_bytes()).hexdigest()
    assert lines[:2] == ["model        model-v2.cstc", f"sha256       {digest}"]
    assert lines[2:4] == ["trained      on 442 rows, 2026-11-16", "mean cost    61.25 in training"]
    lines = run("inspect", GOLDEN).splitlines()
    assert lines[0] == "model        model-v1.cstc"
    assert lines[2].startswith("predicts ")


def test_inspect_every_kind_of_model(tmp_path):
    rng = np.random.default_rng(0)
    for k, task in enumerate(["regression", "binary", "multiclass", "ranking"] * 3):
        model = random_world(rng, task).model
        path = tmp_path / f"{k}.cstc"
        cstc.save(model, path)
        text = run("inspect", path)
        assert text.count("terminal ") == model.shape.n_terminals
        assert all(name in text for name in model.costs.item_names)


def test_inspect_names_sources_and_fallbacks(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    method = cstc.Experts(folds=2, sources={"laboratory": [1, 2]})
    model = cstc.CSTCRegressor(method=method, n_weak_learners=8, cost_weight=0.01, random_state=0, n_jobs=1)
    model.fit(X, X[:, 0] + X[:, 1]).save(tmp_path / "model.cstc")
    lines = run("inspect", tmp_path / "model.cstc").splitlines()
    n_fallbacks = model.model_.fallback_weights.shape[1]
    assert n_fallbacks
    assert any(line.split()[:2] == ["fallbacks", str(n_fallbacks)] for line in lines)
    assert "sources      laboratory, x0" in lines
    assert not any(line.startswith(("fallbacks", "sources")) for line in run("inspect", GOLDEN).splitlines())


def test_files_that_are_no_models(tmp_path):
    path = tmp_path / "model.cstc"
    path.write_bytes(b"nonsense")
    for command in ("inspect", "serve"):
        text = run(command, path, status=1)
        assert text.startswith("Error: ")
        assert "Traceback" not in text
        assert "does not exist" in run(command, tmp_path / "none.cstc", status=2)


@pytest.mark.parametrize("name", ["sources", "some", "make"])
def test_serve_finds_extractors(folder, served, name):
    text = run("serve", "model.cstc", "--extractors", f"cli_sources:{name}")
    assert text == "serving model.cstc on http://127.0.0.1:1 (stop with Ctrl+C)\n"
    ((predictor, options),) = served
    assert [source.name for source in predictor.extractors] == ["first", "second"]
    assert options["host"] == "127.0.0.1"
    assert options["token"] is None


def test_serve_with_all_options(folder, served, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "secret")
    arguments = ["-e", "cli_sources:first", "-e", "cli_sources:second", "--host", "0.0.0.0", "--port", 9000]
    arguments += ["--token-variable", "MY_TOKEN", "--prefetch", "node", "--threads", 3, "--max-seconds", 2]
    arguments += ["--max-body", 5000, "--max-rows", 7, "--max-predictions", 8, "--max-sessions", 9]
    arguments += ["--session-seconds", 11, "--access-log", "--strict"]
    run("serve", "model.cstc", *arguments)
    ((predictor, options),) = served
    assert predictor.prefetch == "node"
    limits = options["limits"]
    assert (limits.seconds, limits.body_bytes, limits.rows, limits.predictions) == (2, 5000, 7, 8)
    assert (limits.sessions, limits.session_seconds) == (9, 11)
    assert (options["host"], options["port"], options["token"]) == ("0.0.0.0", 9000, "secret")
    assert options["access_log"]
    assert predictor.strict
    assert options["model"] == ("model.cstc", hashlib.sha256((folder / "model.cstc").read_bytes()).hexdigest())


def test_serve_without_all_extractors(folder, served):
    run("serve", "model.cstc")  # all from the clients
    given = [part for name in NAMES[3:] for part in ("--given", name)]
    run("serve", "model.cstc", "-e", "cli_sources:first", *given)
    assert len(served) == 2
    assert "no extractor provides" in run("serve", "model.cstc", "-e", "cli_sources:first", status=1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cli_sources", "module:name"),
        ("no_such_module:sources", "no module 'no_such_module'"),
        ("cli_sources:nothing", "has no 'nothing'"),
        ("cli_sources:nonsense", "is a int; it must be a list of extractors"),
        ("cli_sources:name", "is a str; it must be a list of extractors"),
    ],
)
def test_extractors_that_are_not_there(folder, name, message):
    assert message in run("serve", "model.cstc", "--extractors", name, status=2)


def test_faults_of_the_user_in_one_line(folder, monkeypatch):
    assert "is no extractor" in run("serve", "model.cstc", "-e", "cli_sources:broken", status=1)
    assert "set CSTC_TOKEN" in run("serve", "model.cstc", "--host", "0.0.0.0", "--port", 0, status=1)
    assert "must be a number above 0" in run("serve", "model.cstc", "--max-rows", 0, status=1)
    monkeypatch.setenv("CSTC_TOKEN", "")
    assert "CSTC_TOKEN" in run("serve", "model.cstc", status=1)


@pytest.mark.parametrize(
    "option",
    ["--max-rows", "--max-body", "--max-predictions", "--max-seconds", "--max-sessions", "--session-seconds"],
)
def test_limits_are_named_as_on_the_command_line(folder, option):
    for value in (0, -1):
        assert run("serve", "model.cstc", option, value, status=1).startswith(f"Error: {option} is {value}")


def test_an_address_that_others_can_reach(folder):
    said = run("serve", "model.cstc", "--host", "0.0.0.0", "--token-variable", "MY_TOKEN", "--port", 0, status=1)
    assert "set MY_TOKEN, listen on 127.0.0.1, or say --allow-no-token" in said


def test_features_without_a_source(folder):
    said = run("serve", "model.cstc", "-e", "cli_sources:first", status=1)
    assert "no extractor provides 'x3'" in said
    assert "or name in --given what every request brings along" in said
    said = run("serve", "model.cstc", "--given", "age", status=1)
    assert said.startswith("Error: --given names an unknown feature 'age'")


def test_a_module_that_lacks_another_one_says_so(folder):
    said = run("serve", "model.cstc", "-e", "cli_needy:sources", status=1)
    assert said == "Error: No module named 'a_module_that_is_not_there'\n"
    found = CliRunner().invoke(main, ["--debug", "serve", "model.cstc", "-e", "cli_needy:sources"])
    assert isinstance(found.exception, ModuleNotFoundError)


def blocked(tmp_path, *modules):
    """An environment in which these modules cannot be imported."""
    for module in modules:
        (tmp_path / f"{module}.py").write_text("raise ImportError('not installed')")
    inherited = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *([inherited] if inherited else [])])}


def test_without_the_extra_the_error_names_it(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("a\n1\n")
    serve = ["serve", str(GOLDEN)]
    for module, arguments, extra in (
        ("click", serve, "cli"),
        ("starlette", serve, "serve"),
        ("uvicorn", serve, "serve"),
        ("pyarrow", ["prices", str(table)], "cli"),
        ("matplotlib", ["frontier", str(table), "--target", "a", "-o", str(tmp_path / "f")], "cli"),
    ):
        folder = tmp_path / module
        folder.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "cstc", *arguments]
        done = subprocess.run(command, env=blocked(folder, module), capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert f"pip install 'cstc[{extra}]'" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert "Traceback" not in done.stderr


def test_inspect_is_quick_to_start():
    code = (
        "import sys, cstc.cli\n"
        "cstc.cli.main(['inspect', sys.argv[1]], standalone_mode=False)\n"
        "heavy = {'sklearn', 'scipy', 'lightgbm', 'starlette', 'uvicorn', 'pyarrow'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code, str(GOLDEN)], check=True, capture_output=True)


def test_serving_in_process_needs_no_web_server():
    code = "import sys, cstc.serving; assert not {'starlette', 'uvicorn', 'click'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_inspect_prints_what_errors_cost(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    names = np.where(X[:, 0] > 0, "sick", "well")
    errors = {"sick": {"well": 5000, None: 60}, "well": {"sick": 300, None: 60}}
    CSTCClassifier(error_costs=errors, n_weak_learners=5, random_state=0).fit(X, names).save(tmp_path / "model.cstc")
    result = CliRunner().invoke(main, ["inspect", str(tmp_path / "model.cstc")])
    assert result.exit_code == 0, result.output
    lines = [line for line in result.output.splitlines() if line.startswith("errors ")]
    assert lines == [
        "errors       where sick is true, to decide costs: sick 0, well 5000, refer to a person 60",
        "errors       where well is true, to decide costs: sick 300, well 0, refer to a person 60",
    ]


def test_inspect_prints_a_limit_and_both_models_of_a_mixture(folder):
    model = cstc.load("model.cstc")
    model.with_limit(12.5).save("limited.cstc")
    assert "limit        12.5; no row pays more" in CliRunner().invoke(main, ["inspect", "limited.cstc"]).output
    assert "limit " not in CliRunner().invoke(main, ["inspect", "model.cstc"]).output
    cstc.Mixture(model, model, share=0.25, seed=9).save("mixture.cstc")
    printed = CliRunner().invoke(main, ["inspect", "mixture.cstc"])
    assert printed.exit_code == 0
    assert "mixture      75.0% of rows take the cheaper of two models, 25.0% the other" in printed.output
    assert "seed         9, of the coins that are drawn from the ids of rows" in printed.output
    cheaper, _, costlier = printed.output.partition("the more expensive model")
    alone = CliRunner().invoke(main, ["inspect", "model.cstc"]).output
    assert alone.partition("predicts")[2] == costlier.partition("predicts")[2]
    assert "the cheaper model" in cheaper


def test_a_mixture_is_served(folder, served):
    model = cstc.load("model.cstc")
    cstc.Mixture(model, model, share=0.25).save("mixture.cstc")
    found = CliRunner().invoke(main, ["serve", "mixture.cstc"])
    assert found.exit_code == 0, found.output
    ((predictor, _),) = served
    assert predictor._compiled.model.share == 0.25
