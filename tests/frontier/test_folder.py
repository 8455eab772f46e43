"""A frontier in a folder: what is saved is loaded, and what is damaged is refused with a sentence."""

import json

import numpy as np
import pytest

from cstc import CSTCClassifier, CSTCRegressor, Frontier
from cstc.datasets import QUADRANT_COSTS, make_quadrants
from cstc.frontier import load_frontier, save_frontier
from cstc.frontier._folder import check_folder

X, Y = make_quadrants(300, random_state=0)


@pytest.fixture(scope="module")
def fitted():
    estimator = CSTCRegressor(costs=QUADRANT_COSTS, weak_learners="identity", random_state=0, n_jobs=1)
    return Frontier(estimator, cost_weights=[0.03, 0.3]).fit(X, Y)


@pytest.fixture
def saved(fitted, tmp_path):
    save_frontier(fitted, tmp_path / "f", {"command": "cstc frontier", "finished": "2026-11-16"})
    return tmp_path / "f"


def test_round_trip(fitted, saved):
    found = load_frontier(saved)
    assert found.table == fitted.table_
    assert found.tried == fitted.tried_
    assert repr(found.table) == repr(fitted.table_)
    assert found.quality_name == "R²"
    assert found.made == {"command": "cstc frontier", "finished": "2026-11-16"}
    assert found.references == []
    assert found.files == [f"models/model-{rank:02}.cstc" for rank in range(1, len(fitted.models_) + 1)]
    for model, own in zip(found.models, fitted.models_, strict=True):
        assert np.array_equal(model.predict(X), own.predict(X))
        assert model.training.trained == "2026-11-16"
    assert (saved / "frontier.png").read_bytes().startswith(b"\x89PNG")


def test_other_systems_beside_it(fitted, tmp_path):
    points = [{"mean_cost": 3.0, "quality": 0.5}]
    save_frontier(fitted, tmp_path, {}, references=[("LightGBM", points)])
    assert load_frontier(tmp_path).references == [("LightGBM", points)]


def test_a_mixture_is_kept(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(200, 4))
    labels = (values[:, 0] + values[:, 1] > 0).astype(int)
    estimator = CSTCClassifier(costs=[10, 10, 1, 1], n_weak_learners=8, random_state=0, n_jobs=1)
    frontier = Frontier(estimator, n_weights=3).fit(values, labels)
    frontier.refine(values, labels, mean_cost=5)
    save_frontier(frontier, tmp_path, {})
    found = load_frontier(tmp_path)
    assert [type(model).__name__ for model in found.models] == [type(each.model_).__name__ for each in frontier.models_]
    assert found.table == frontier.table_


def test_saving_again_replaces_all_of_it(fitted, saved):
    (saved / "models" / "model-99.cstc").write_bytes(b"of an earlier one")
    (saved / "checkpoint").mkdir()
    save_frontier(fitted, saved, {"again": True})
    assert load_frontier(saved).made == {"again": True}
    assert len(list((saved / "models").iterdir())) == len(fitted.models_)
    assert not (saved / "checkpoint").exists()


def test_a_save_that_fails_leaves_no_whole_frontier(fitted, saved, monkeypatch):
    """While files are replaced, nobody takes the folder for a finished one."""
    import cstc.frontier._folder as folder

    def fail(*_, **__):
        raise OSError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(folder, "save", fail)
        with pytest.raises(OSError, match="the disk is full"):
            save_frontier(fitted, saved, {})
    with pytest.raises(ValueError, match="holds no frontier"):
        load_frontier(saved)
    with pytest.raises(TypeError, match="JSON does not know"):
        save_frontier(fitted, saved, {"odd": object()})
    assert not (saved / "frontier.json").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("table"), "is damaged: 'table'"),
        (lambda d: d.update(format="other"), "the format is 'other'"),
        (lambda d: d.update(version=9), "it has version 9; this cstc reads version 1"),
        (lambda d: d["models"].pop(), "models and"),
        (lambda d: d["models"][0].update(file="../secret.cstc"), "it names the model '../secret.cstc'"),
        (lambda d: d["models"][0].update(file="models/model-77.cstc"), "is not there, though"),
        (lambda d: d["models"][0].update(sha256="0"), "is another model than the one that was saved"),
    ],
)
def test_damage_is_a_sentence(saved, change, message):
    document = json.loads((saved / "frontier.json").read_text())
    change(document)
    (saved / "frontier.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=message):
        load_frontier(saved)


def test_other_damage(saved, tmp_path):
    (saved / "models" / "model-01.cstc").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"model-01\.cstc"):
        load_frontier(saved)
    (saved / "frontier.json").write_text("{")
    with pytest.raises(ValueError, match=r"frontier\.json is damaged"):
        load_frontier(saved)
    with pytest.raises(ValueError, match="holds no frontier"):
        load_frontier(tmp_path)


def test_folders_of_others_are_left_alone(fitted, tmp_path):
    assert not check_folder(tmp_path / "new")
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"a folder with other files in it, such as 'letter\.txt'"):
        save_frontier(fitted, tmp_path, {})
    with pytest.raises(ValueError, match="is a file; a frontier goes into a folder"):
        save_frontier(fitted, tmp_path / "letter.txt", {})
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
