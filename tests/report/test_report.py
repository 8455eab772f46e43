"""The page as text: its numbers are the models' own, nothing is left out, and names stay names."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.metrics import roc_auc_score

from cstc import CSTCClassifier, CSTCRanker, Frontier, Mixture
from cstc.report import _measured as measured
from cstc.report import report_page, write_report
from cstc.report._axis import Axis
from cstc.report._models import first_shown
from cstc.report._saved import contents_of
from cstc.serving.explain.words import money as in_words
from cstc.serving.explain.words import printed
from hostile_names import HOSTILE

VOID = {"meta", "input", "br", "path", "rect", "circle"}


class Tree(HTMLParser):
    """Checks that elements are closed in order, and keeps tags, attributes and text."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.ids = [], [], [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        assert all(not name.startswith("on") for name, _ in attrs), attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self):
        return re.sub(r" ([,.;:)])", r"\1", " ".join(" ".join(self.texts).split()))


def panel(page, number):
    """The part of a page that is about one model."""
    found = re.search(rf'<section class="panel" data-panel="{number}".*?</section>', page, re.DOTALL)
    return Tree(found[0]).text


@pytest.fixture(scope="module")
def cancer_page(cancer):
    return report_page(cancer.saved, **cancer.test)


def test_a_page_is_whole_and_asks_nobody(cancer_page):
    tree = Tree(cancer_page)
    assert len(tree.ids) == len(set(tree.ids))
    addresses = [value for _, attrs in tree.tags for key, value in attrs.items() if key in ("src", "href", "action")]
    assert addresses
    assert all(address.startswith("#") and address[1:] in tree.ids for address in addresses)
    assert "url(" not in cancer_page
    assert "@import" not in cancer_page
    assert "http" not in cancer_page.replace("http-equiv", "")
    policy = next(attrs["content"] for tag, attrs in tree.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_figures_on_the_test_rows_are_those_of_the_models(cancer, cancer_page):
    X, y = cancer.test["X"], cancer.test["y"]
    for number, model in enumerate(cancer.frontier.models_, 1):
        text, costs = panel(cancer_page, number), model.predict_cost(X)
        assert f"mean cost of a row {in_words(costs.mean())}" in text
        assert f"most expensive row {in_words(costs.max())}" in text
        auc = roc_auc_score(y == "malignant", model.predict_proba(X)[:, 1])
        assert f"AUC {auc:.3f}" in text


def test_items_are_those_of_the_library(cancer, cancer_page):
    model, text = cancer.frontier.models_[-1], panel(cancer_page, len(cancer.frontier.models_))
    rows = model.model_.item_importance(cancer.test["X"], cancer.test["y"])
    assert len(rows) > 12  # some of them are folded
    for row in rows:
        assert re.search(rf"{re.escape(row['item'])} {re.escape(in_words(row['price']))} ", text), row
    most = max(rows, key=lambda row: abs(row["loss_saved"]))
    assert most["loss_saved_error"] > 0.0001
    assert f"± {most['loss_saved_error']:.4f}" in text
    assert "loss saved" not in panel(report_page(cancer.frontier), 2)  # without rows nobody knows


def test_the_largest_spenders_are_explained_by_the_library(cancer, cancer_page):
    model, X = cancer.frontier.models_[1], cancer.test["X"]
    costs = model.predict_cost(X)
    at = int(costs.argmax())
    text = panel(cancer_page, 2)
    assert f"Row {at + 1} paid {in_words(costs.max())}" in text
    told = model.model_.explain(X.iloc[[at]])
    assert told.steps
    for step in told.steps:
        assert step.why in text
    assert f"Its true label: {cancer.test['y'][at]}." in text


def test_purchases_in_order_add_up_to_the_bill(cancer):
    contents = contents_of(cancer.saved)
    rows = measured.as_test_rows(contents, cancer.test["X"], cancer.test["y"], None, None)
    for seen in measured.see(contents, rows):
        prices, tree = seen.model.costs.prices, seen.trees[0]
        if tree.tree.shape.depths.max() < len(seen.buyers):  # no row buys more often than it meets nodes
            assert (seen.purchases @ prices).sum() == pytest.approx(seen.costs.mean())
        assert (np.diff(seen.buyers) <= 1e-12).all()
        assert tree.ends.sum() == pytest.approx(1)
        assert np.nansum(tree.ends * tree.end_costs) == pytest.approx(seen.costs.mean())
        assert tree.classes[0] @ np.ones(2) == pytest.approx(1)


def test_other_systems_are_beside_the_models_on_the_same_rows(cancer, cancer_page):
    text = Tree(cancer_page).text
    assert "measured on the validation rows, as are the other systems beside it" in text
    assert "plain LightGBM" in text
    assert "CEGB" in text
    labels = [attrs.get("aria-label", "") for _, attrs in Tree(cancer_page).tags]
    assert "CEGB: mean cost 20, AUC 0.970" in labels
    row = cancer.saved.table[1]
    wanted = f"Model 2: mean cost {in_words(row['mean_cost'])}"
    assert any(label.startswith(wanted) and f"AUC {row['validation_quality']:.3f}" in label for label in labels)


def test_without_other_systems_the_test_rows_are_shown(cancer):
    page = report_page(cancer.frontier, **cancer.test)
    assert "Each point is a model, measured on test.csv (169 rows)." in Tree(page).text


def test_how_it_was_made_is_all_there(cancer, cancer_page):
    text = Tree(cancer_page).text
    assert cancer.saved.made["command"] in text
    assert "train.csv" in text
    assert "123,456" in text
    assert "ab" * 32 in text
    assert "Prices of 30 items, 72 for all features of a row" in text
    strange = SimpleNamespace(**vars(cancer.saved) | {"made": {"weather": {"wind": ["north", 3]}, "prices": "p.csv"}})
    text = Tree(report_page(strange)).text
    assert "Weather wind north, 3" in text
    assert "Prices came from p.csv" in text
    bill = {"items": {"age": 1.0}, "requires": {}, "file": "q.csv"}
    text = Tree(report_page(SimpleNamespace(**vars(cancer.saved) | {"made": {"prices": bill}}))).text
    assert "Prices came from file q.csv" in text
    assert "requires" not in text
    assert "Rows that taught" in Tree(report_page(SimpleNamespace(**vars(cancer.saved) | {"made": {}}))).text


def test_without_rows_the_page_says_what_training_knows(cancer, diabetes):
    for frontier in (cancer.frontier, diabetes.frontier):
        text = Tree(report_page(frontier)).text
        assert "No test rows were given: it shows what the models remember of their training." in text
        assert "This needs test rows: give them to see who pays most, and why." in text
    model = diabetes.frontier.models_[-1].model_
    text = panel(report_page(diabetes.frontier), len(diabetes.frontier.models_))
    assert f"maximum {in_words(model.terminal_costs().max())}" in text
    forgetful = SimpleNamespace(
        models=[replace(model, training=type(model.training)())],
        table=[diabetes.frontier.table_[-1]],
        quality_name="R²",
    )
    text = Tree(report_page(forgetful)).text
    assert "does not remember where its training rows went" in text
    assert "How many rows take each is not known of this model" in text


def test_rows_without_labels_show_what_can_be_known(cancer):
    text = Tree(report_page(cancer.frontier, X=cancer.test["X"])).text
    assert "classes, as predicted, of the rows" in text
    assert "costs on the test rows, quality on the rows that chose" in text
    assert "This needs test rows with labels" in text
    assert "what was expected of it in training" in text


def test_numbers_have_a_mean_target_and_no_probabilities(diabetes):
    text = Tree(report_page(diabetes.frontier, **diabetes.test)).text
    assert "mean target" in text
    assert "typically off by" in text
    assert "keep their promise" not in text


def test_errors_with_prices_are_shown_in_money(money):
    page = report_page(money.frontier, **money.test)
    text = Tree(page).text
    assert "total cost (less is better)" in text
    assert "Decision: " in text
    assert "errors cost" in text
    for number, model in enumerate(money.frontier.models_, 1):
        total = model.total_cost(money.test["X"], money.test["y"]).mean()
        assert f"features and errors together {in_words(total)}" in panel(page, number)


def test_beside_other_systems_errors_with_prices_are_in_money_too(money):
    contents = contents_of(money.frontier)
    references = [("LightGBM", [{"mean_cost": 27.0, "quality": -12.5}])]
    saved = SimpleNamespace(
        models=contents.models, table=contents.table, quality_name=contents.quality_name, references=references
    )
    labels = [attrs.get("aria-label", "") for _, attrs in Tree(report_page(saved, **money.test)).tags]
    assert "LightGBM: mean cost 27, total cost 39.50" in labels
    row = contents.table[-1]
    total = row["mean_cost"] - row["validation_quality"]
    assert any(f", total cost {total:.2f}" in label for label in labels if label.startswith("Model "))


def test_a_mixture_shows_both_trees(diabetes):
    cheap, full = (diabetes.frontier.models_[at].model_ for at in (0, -1))
    mixture = Mixture(cheap, full, share=0.5)
    row = diabetes.frontier.table_[-1] | {"cost_weight": None}
    saved = SimpleNamespace(models=[cheap, mixture], table=[diabetes.frontier.table_[0], row], quality_name="R²")
    page = report_page(saved, **diabetes.test)
    text = panel(page, 2)
    assert "The cheaper tree" in text
    assert "The more expensive tree" in text
    assert "Of two models this row takes the more expensive one" in text
    assert f"mean cost of a row {in_words(mixture.predict_cost(diabetes.test['X']).mean())}" in text
    assert "mixture" in Tree(page).text
    assert "The cheaper tree: 50% of rows take it" in panel(report_page(saved), 2)


def test_a_ranking_is_judged_by_its_queries():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(300, 4)), np.repeat(np.arange(30), 10)
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=300), [-0.5, 0.5]).astype(float)
    frontier = Frontier(CSTCRanker(n_weak_learners=10, random_state=0), cost_weights=[10.0, 0.001])
    frontier.fit(X[:200], y[:200], qid=qid[:200])
    page = report_page(frontier, X=X[200:], y=y[200:], qid=qid[200:])
    score = frontier.models_[-1].score(X[200:], y[200:], qid=qid[200:])
    assert f"NDCG@5 {score:.3f}" in panel(page, len(frontier.models_))
    assert "How good the first five of each query are" in Tree(page).text
    for at, words in ((1, "the first of each query is"), (10, "the first ten of"), (40, "the first 40 of")):
        frontier.quality_name_ = f"NDCG@{at}"
        page = report_page(frontier, X=X[200:], y=y[200:], qid=qid[200:])
        score = frontier.models_[-1].score(X[200:], y[200:], qid=qid[200:], k=at)
        assert f"NDCG@{at} {score:.3f}" in panel(page, len(frontier.models_))
        assert f"How good {words}" in Tree(page).text
    with pytest.raises(ValueError, match="give qid= with y"):
        report_page(frontier, X=X[200:], y=y[200:])
    with pytest.raises(ValueError, match=r"qid has shape \(3,\); X has 100 rows"):
        report_page(frontier, X=X[200:], y=y[200:], qid=[1, 2, 3])


def test_a_quality_of_the_user_is_not_measured_again(cancer):
    saved = SimpleNamespace(**vars(cancer.saved) | {"quality_name": "mine", "references": []})
    text = Tree(report_page(saved, **cancer.test)).text
    assert "Each point is a model, measured on rows that did not teach it when the frontier was made." in text
    assert "costs on test.csv, quality on the rows that chose" in text
    assert "A measure that was chosen when the frontier was made" in text


def test_one_row_and_one_class_are_enough(cancer):
    for n in (1, 5):
        X, y = cancer.test["X"][:n], np.array(["benign"] * n)
        assert f"test rows, {n} row" in Tree(report_page(cancer.frontier, X=X, y=y)).text


def test_of_many_rows_some_are_looked_at_and_the_page_says_so(cancer, monkeypatch):
    monkeypatch.setattr(measured, "MOST_FLOWING", 50)
    monkeypatch.setattr("cstc.report._page.MOST_FLOWING", 50)
    monkeypatch.setattr(measured, "MOST_JUDGED", 40)
    monkeypatch.setattr("cstc.report._money.MOST_JUDGED", 40)
    page = report_page(cancer.frontier, **cancer.test)
    assert "Flow through the trees is that of 50 of the 169 test rows, drawn at random." in Tree(page).text
    assert "Measured on 40 of the rows, drawn at random." in Tree(page).text
    costs = cancer.frontier.models_[-1].predict_cost(cancer.test["X"])
    assert f"mean cost of a row {in_words(costs.mean())}" in panel(page, len(cancer.frontier.models_))


def test_the_page_opens_with_the_cheapest_model_that_is_as_good_as_the_best(cancer, money):
    contents = contents_of(cancer.saved)
    at, best = first_shown(contents), max(contents.table, key=lambda row: row["quality"])
    least = best["quality"] - best["quality_error"]
    assert contents.table[at]["quality"] >= least
    assert all(row["quality"] < least for row in contents.table[:at])
    contents = contents_of(money.frontier)
    totals = [row["total_cost"] for row in contents.table]
    assert totals[first_shown(contents)] == min(totals)


# -- names -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_rows", [True, False], ids=["with rows", "without"])
def test_hostile_names_stay_text(hostile, with_rows):
    page = report_page(hostile.saved, **(hostile.test if with_rows else {}))
    tree = Tree(page)
    tags = [tag for tag, _ in tree.tags]
    assert tags.count("script") == 1
    assert not {"img", "iframe", "object"} & set(tags)
    text = " ".join("".join(tree.texts).split())
    for each in HOSTILE:
        assert " ".join(printed(each).split()) in text, each
    assert "\u202e" not in page


# -- files, sizes, mistakes ------------------------------------------------------------------------------------


def test_a_file_is_written_whole_or_not_at_all(cancer, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("what was there")
    with pytest.raises(ValueError, match="no class of the model"):
        write_report(cancer.saved, path, X=cancer.test["X"], y=["other"] * 169)
    assert path.read_text() == "what was there"
    write_report(cancer.saved, path, **cancer.test)
    assert path.read_text(encoding="utf-8") == report_page(cancer.saved, **cancer.test)
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(FileNotFoundError, match="does not exist; make it first"):
        write_report(cancer.saved, tmp_path / "nowhere" / "report.html")


def test_100_features_and_10_models_fit_into_2_megabytes():
    X, y = make_classification(1500, 100, n_informative=30, n_redundant=30, class_sep=0.5, random_state=0)
    prices = np.random.default_rng(0).lognormal(1, 1, 100).round(2)
    estimator = CSTCClassifier(costs=prices, n_weak_learners=30, random_state=0)
    weights = [0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 3e-4, 1e-4, 1e-5, 0.0]
    frontier = Frontier(estimator, cost_weights=weights).fit(X[:1200], y[:1200])
    models = frontier.tried_models_[-10:]
    saved = SimpleNamespace(
        models=[model.model_ for model in models], table=list(frontier.tried_)[-10:], quality_name="AUC"
    )
    page = report_page(saved, X=X[1200:], y=y[1200:])
    assert len(models) == 10
    assert max(row["items"] for row in saved.table) > 80
    assert len(page.encode("utf-8")) < 2_000_000


def test_mistakes_are_told(cancer):
    with pytest.raises(TypeError, match="without models and table and quality_name; give a fitted Frontier"):
        report_page({})
    with pytest.raises(ValueError, match="2 models and 0 rows in its table"):
        report_page(SimpleNamespace(models=[1, 2], table=[], quality_name="AUC"))
    with pytest.raises(TypeError, match=r"saved\.models holds a CSTCClassifier"):
        report_page(SimpleNamespace(models=cancer.frontier.models_[:1], table=[{}], quality_name="AUC"))
    with pytest.raises(ValueError, match="y is given without X"):
        report_page(cancer.saved, y=cancer.test["y"])
    with pytest.raises(ValueError, match="X has no rows"):
        report_page(cancer.saved, X=cancer.test["X"][:0])
    with pytest.raises(ValueError, match="qid is given, and these models are judged by AUC; leave it out"):
        report_page(cancer.saved, X=cancer.test["X"], qid=np.zeros(169))
    wrong = SimpleNamespace(**vars(cancer.saved) | {"references": [("CEGB", [{"cost": 3}])]})
    with pytest.raises(ValueError, match="a reference is a name and its points"):
        report_page(wrong)


def test_mistakes_in_labels_of_numbers_are_told(diabetes):
    X = diabetes.test["X"]
    with pytest.raises(ValueError, match=r"y has shape \(2,\); X has 92 rows"):
        report_page(diabetes.frontier, X=X, y=[1.0, 2.0])
    with pytest.raises(ValueError, match="no number"):
        report_page(diabetes.frontier, X=X, y=["much"] * 92)
    with pytest.raises(ValueError, match="not finite, first in row 1"):
        report_page(diabetes.frontier, X=X, y=[1.0] + [np.nan] * 91)


# -- axes ------------------------------------------------------------------------------------------------------


def test_costs_that_spread_have_a_logarithmic_axis():
    near, far = Axis.of_costs([0, 1, 29]), Axis.of_costs([0, 1, 10, 31])
    assert not near.logarithmic
    assert far.logarithmic
    assert far.at(0) == 0
    assert far.at(10) - far.at(1) == pytest.approx(far.at(100 / 10) - far.at(1))
    assert 0 < far.gap < far.at(1) < far.at(10) < far.at(31) < 100
    assert near.at(14.5) == pytest.approx(near.at(29) / 2)


@pytest.mark.parametrize("costs", [[0.0], [0, 5e-7], [0.001, 900], [3, 4], [1e9, 2e9], [0, 0.5, 77]])
def test_ticks_are_in_order_and_few(costs):
    axis = Axis.of_costs(costs)
    places = [place for place, _ in axis.ticks()]
    assert places == sorted(places)
    assert 1 < len(places) <= 9
    assert len({text for _, text in axis.ticks()}) == len(places)
