"""Pages: valid, accessible, escaped, the same bytes every time, small for large models, and true."""

import copy
import re
import subprocess
import sys
import warnings
from functools import cache

import dask.array as da
import html5lib
import numpy as np
import pytest

import dask_dca as dca
from dask_dca.engine.rows import as_rows
from dask_dca.errors import DCAError, InvalidInputError, InvalidParameterError
from dask_dca.reporting.data import DataSummary
from tests.report.conftest import NAMES, SHAPES, example, page, page_without_data

XHTML, SVG = "{http://www.w3.org/1999/xhtml}", "{http://www.w3.org/2000/svg}"
EVIL = "<script>alert(1)</script>\"'&"


@cache
def parsed(text):
    """The page as a tree; anything that isn't HTML5 is an error."""
    return html5lib.HTMLParser(strict=True, tree=html5lib.getTreeBuilder("etree")).parse(text)


def words(text):
    return " ".join("".join(parsed(text).find(f"{XHTML}body").itertext()).split())


@pytest.mark.parametrize("made", [page, page_without_data])
def test_a_page_is_valid_and_self_contained(name, made):
    text = made(name)
    tree = parsed(text)
    assert tree.get("lang") == "en"
    assert not list(tree.iter(f"{XHTML}script"))
    assert [one.get("href") for one in tree.iter(f"{XHTML}link")] == ["data:,"]
    assert not re.search(r"https?://|@import|url\((?!#)", text.replace("http://www.w3.org", ""))
    assert all(
        one.get("href", "data:,").startswith(("#", "data:image/png;base64,")) for one in tree.iter(f"{SVG}image")
    )
    names = [one.get("id") for one in tree.iter() if one.get("id")]
    assert len(names) == len(set(names))
    assert not [one for one in tree.iter() if any(key.startswith("on") for key in one.attrib)]
    policy = tree.find(f".//{XHTML}meta[@http-equiv]").get("content")
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:;")


def test_headings_tables_and_figures_are_accessible(name):
    tree = parsed(page(name))
    headings = {f"{XHTML}h{level}": level for level in range(1, 7)}
    levels = [headings[one.tag] for one in tree.iter() if one.tag in headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert set(levels[1:]) == {2}
    for table in tree.iter(f"{XHTML}table"):
        assert table.find(f"{XHTML}caption").text
        assert all(head.get("scope") in ("col", "row") for head in table.iter(f"{XHTML}th"))
        widths = {len(row) for row in table.iter(f"{XHTML}tr")}
        assert len(widths) == 1
    drawings = list(tree.iter(f"{SVG}svg"))
    assert drawings
    for one in drawings:
        assert one.get("aria-hidden") == "true" or (one.get("role") == "img" and len(one.get("aria-label")) > 10)
        assert one.get("aria-hidden") == "true" or not one.get("class").startswith("bar")
    targets = {one.get("id") for one in tree.iter() if one.get("id")}
    assert {link.get("href")[1:] for link in tree.iter(f"{XHTML}a")} <= targets


def test_a_page_says_what_the_model_found(name):
    model, _ = example(name)
    text = words(page(name))
    anchors = {"lda": "anchor_words_", "categorical": "anchor_symbols_"}.get(name, "anchor_indices_")
    for row in getattr(model, anchors)[:3]:
        assert str(row) in text
    for part in ("The certificate", "How it was made", "fingerprint of the data", dca.__version__):
        assert part in text
    said = {
        "nmf": lambda: [f"{100 * model.coverage_:.1f} %", f"{100 * model.explained_variance_ratio_:.1f} %"],
        "mixture": lambda: [f"{100 * weight:.1f} %" for weight in model.weights_],
        "hmm": lambda: [f"{100 * share:.1f} %" for share in model.state_counts_ / model.state_counts_.sum()],
        "categorical": lambda: [
            f"{j} ({100 * model.emissionprob_[0, j]:.1f} %)" for j in [model.emissionprob_[0].argmax()]
        ],
        "kalman": lambda: [f"{100 * model.explained_variance_ratio_:.1f} %"],
        "lda": lambda: [*model.get_anchor_words(), *model.top_words(5)[0]],
        "subspace": lambda: [str(size) for size in model.cluster_sizes_],
    }
    for part in said[name]():
        assert part in text, part


@pytest.mark.usefixtures("unlaid")
def test_names_are_escaped(name):
    model, X = example(name)
    evil = copy.copy(model)
    evil.feature_names_in_ = np.array([f"{EVIL}{i}" for i in range(model.n_features_in_)], dtype=object)
    for text in (
        dca.report(evil, data=np.asarray(X) if name != "lda" else X, title=EVIL, date=EVIL, shape=SHAPES.get(name)),
        evil._repr_html_(),
    ):
        assert "<script" not in text
        named = name == "lda" or text.startswith("<!doctype")  # in notebooks no features but words are named
        assert "&lt;script&gt;" in text or not named
        tree = parsed(text if text.startswith("<!doctype") else f"<!doctype html><title>x</title>{text}")
        assert not [one for one in tree.iter() if str(one.tag).endswith("script")]


@pytest.mark.usefixtures("unlaid")
def test_control_characters_and_long_names_are_cut():
    model = copy.copy(example("kalman")[0])
    model.feature_names_in_ = np.array(["a\x00\x1b[2J\u202e" + "x" * 10_000] * model.n_features_in_, dtype=object)
    text = dca.report(model)
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)
    assert len(text) < 200_000
    parsed(text)


def test_the_same_model_gives_the_same_bytes(name, tmp_path):
    """From disk, and of the same data in chunks."""
    model, X = example(name)
    model.save(str(tmp_path / "model.zarr"))
    again = dca.load_model(str(tmp_path / "model.zarr"))
    data = {"nmf": lambda: da.from_array(X, chunks=(301, -1)), "kalman": lambda: da.from_array(X.to_numpy(), (90, -1))}
    found = dca.report(again, data=data.get(name, lambda: X)(), shape=SHAPES.get(name))
    assert found == page(name)  # without data: by another process, below


def test_another_process_writes_the_same_page(tmp_path):
    example("mixture")[0].save(str(tmp_path / "model.zarr"))
    load = f"dca.load_model({str(tmp_path / 'model.zarr')!r})"
    program = f"import sys, dask_dca as dca; sys.stdout.buffer.write(dca.report({load}).encode())"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert found.stdout.decode() == page_without_data("mixture")


@pytest.mark.usefixtures("unlaid")
def test_no_time_and_no_address_unless_given():
    model = copy.copy(example("nmf")[0]).set_params(random_state=np.random.default_rng(0))
    text = dca.report(model, date="28 November 2026")
    assert "28 November 2026" in text
    assert "Generator" in text
    assert "0x" not in text
    assert "date" not in words(page("nmf"))


def test_large_models_stay_small_and_say_what_is_left_out():
    rng = np.random.default_rng(0)
    k, p = 200, 10_000
    model = copy.copy(example("nmf")[0])
    model.n_components_, model.n_features_in_ = k, p
    model.components_, model.anchor_indices_ = rng.random((k, p)), np.arange(k)
    model.votes_, model.vote_share_ = np.ones(k, dtype=np.int64), np.full(k, 0.1)
    model.vote_confidence_ = np.tile([0.05, 0.2], (k, 1))
    model.coverage_curve_ = np.linspace(0.2, 0.95, k)
    model.feature_names_in_ = np.array([f"gene number {i}" for i in range(p)], dtype=object)
    text = dca.report(model)
    assert len(text.encode()) < 500_000
    assert text.count("The first 50 of 200 anchors are shown") == 3  # the map, their greatest features, the votes
    assert text.count("<figure") == 2  # one map, not a figure for each: a phone's page stays short
    parsed(text)


@pytest.mark.parametrize("kind", ["GaussianMixture", "GaussianHMM", "KalmanFilter", "SubspaceClustering"])
def test_many_parts_and_features(kind):
    """Many parts of many features, fitted for real."""
    rng = np.random.default_rng(0)
    centres = 6 * rng.standard_normal((26, 80))
    X = (centres[np.repeat(np.arange(26), 20)] + rng.standard_normal((520, 80))).astype(np.float32)
    quick = {"covariance_type": "diag", "max_iter": 1} if kind.startswith("Gaussian") else {}
    model = getattr(dca, kind)(8 if kind == "KalmanFilter" else 26, **quick)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = dca.report(model.fit(X), data=X)
    assert len(text.encode()) < 1_000_000
    parsed(text)


VARIANTS = {
    "paper": lambda X: dca.NMF(3, method="paper").fit(X),
    "one anchor": lambda X: dca.NMF(1).fit(X),
    "auto": lambda X: dca.NMF().fit(X),
    "two features": lambda X: dca.GaussianMixture(2).fit(X[:, :2]),
    "one feature": lambda X: dca.GaussianMixture(2).fit(X[:, :1]),
    "auto mixture": lambda X: dca.GaussianMixture("auto", max_iter=1).fit(X[:60, :2]),
    "paper mixture": lambda X: dca.GaussianMixture(2, method="paper").fit(X),
    "full": lambda X: dca.GaussianMixture(2, covariance_type="full").fit(X),
    "tied": lambda X: dca.GaussianMixture(2, covariance_type="tied").fit(X),
    "spherical": lambda X: dca.GaussianMixture(2, covariance_type="spherical").fit(X),
    "tied-spherical": lambda X: dca.GaussianMixture(2, covariance_type="tied-spherical").fit(X),
    "one component": lambda X: dca.GaussianMixture(1).fit(X),
    "paper chain": lambda X: dca.GaussianHMM(2, method="paper").fit(X),
    "full chain": lambda X: dca.GaussianHMM(2, covariance_type="full").fit(X),
    "one state": lambda X: dca.GaussianHMM(1).fit(X),
    "one dimension": lambda X: dca.KalmanFilter(1).fit(X),
    "paper filter": lambda X: dca.KalmanFilter(2, method="paper").fit(X),
    "known filter": lambda X: dca.KalmanFilter.from_parameters(
        np.eye(2), np.eye(X.shape[1], 2), np.eye(2), np.eye(X.shape[1])
    ),
    "unrefined topics": lambda X: dca.LatentDirichletAllocation(2, max_iter=0).fit(np.rint(20 * X)),
    "paper topics": lambda X: dca.LatentDirichletAllocation(2, method="paper").fit(np.rint(20 * X)),
    "paper clusters": lambda X: dca.SubspaceClustering(2, method="paper").fit(X),
    "one cluster": lambda X: dca.SubspaceClustering(1).fit(X),
}


@pytest.mark.usefixtures("unlaid")
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_kind_of_model_has_a_page(variant):
    rng = np.random.default_rng(0)
    X = rng.dirichlet(np.full(3, 0.3), 300) @ rng.random((3, 12))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = VARIANTS[variant](X)
        seen = np.rint(20 * X) if "topics" in variant else X[:, : model.n_features_in_]
        text = dca.report(model, data=seen)  # one without data says less
    assert not re.search(r"\bnan\b|\binf\b|None of|\[\]", words(text))
    assert ("published algorithm, kept for comparison" in text) == (model.method == "paper")
    assert model._repr_html_().startswith('<div class="dask-dca">')


@pytest.mark.usefixtures("unlaid")
def test_warnings_are_caveats():
    rng = np.random.default_rng(0)
    text = words(dca.report(dca.NMF(3).fit(rng.random((500, 40)))))
    assert "Coverage is low" in text
    assert "Less than half of the variance is explained" in text
    clean = rng.dirichlet(np.ones(3), 200)
    clean[:3] = np.eye(3)
    good = words(dca.report(dca.NMF(3).fit(clean @ rng.random((3, 10)))))
    assert "Caveats" not in good
    unstable = dca.KalmanFilter.from_parameters(1.02 * np.eye(2), np.eye(3, 2), np.eye(2), np.eye(3))
    assert "forecasts grow without bound" in words(dca.report(unstable))
    topics = copy.copy(example("lda")[0])
    topics.distance_to_corpus_ = np.array([0.5, 0.05, 0.5, 0.5, 0.5])
    topics.topic_distances_ = np.array([0.5, 0.5, 0.1, 0.1, 0.5])
    text = words(dca.report(topics))
    assert "Topic 1 is close to the corpus average" in text
    assert "Topics 2 and 3 are much like another one" in text
    chain = copy.copy(example("hmm")[0])
    chain.converged_ = False
    assert "had not converged" in words(dca.report(chain))


@pytest.mark.usefixtures("unlaid")
def test_data_may_have_gaps_where_the_model_allows_them():
    _, X = example("kalman")
    frames = X.to_numpy().copy()
    frames[10:20, 3] = np.nan
    text = dca.report(dca.KalmanFilter(2).fit(frames), data=frames)
    parsed(text)
    assert "Observed and predicted" in text
    model = dca.KalmanFilter.from_parameters([[0.9]], [[1.0]] * 3, [[1.0]], np.ones(3))
    frames = np.column_stack([np.full(50, np.nan), np.ones(50), model.sample(50, 0)[0]])
    assert "feature 2: observed as points" in dca.report(model, data=frames, form="text")
    assert "No channel varies" in dca.report(model, data=frames[:, [0, 1, 1]])


def test_of_wide_data_and_large_models_fewer_rows_are_taken():
    model, X = example("nmf")
    evidence = DataSummary.of(model, np.tile(X, (3, 1)))
    assert len(evidence.sample()) == 2000
    assert len(evidence.sample(1_000_000)) == 400
    assert len(evidence.sample(10**9)) == 200
    wide = da.zeros((5_000, 1_000_000), chunks=(1, -1))
    rows = DataSummary(model, wide, as_rows(wide))
    assert rows.first_rows().shape == (20, 1_000_000)


def test_what_cannot_be_reported():
    model, X = example("nmf")
    with pytest.raises(InvalidParameterError, match=r"shape 5 x 5 holds 25 values, but rows have 64"):
        dca.report(model, shape=(5, 5))
    with pytest.raises(InvalidInputError, match="63 features"):
        dca.report(model, data=X[:, :63])
    with pytest.raises(InvalidInputError, match="no report of a dict"):
        dca.report({})
    with pytest.raises(ValueError, match="not fitted"):
        dca.report(dca.NMF(2))
    mixture, wine = example("mixture")
    with pytest.raises(DCAError, match="are not those of the model"):
        dca.report(mixture, data=wine[wine.columns[::-1]])


@pytest.mark.usefixtures("unlaid")
def test_a_subclass_has_the_report_of_its_model():
    class Mine(dca.NMF):
        pass

    assert "Non-negative matrix factorization" in dca.report(Mine(2).fit(example("nmf")[1][:100]))


def test_all_models_are_tried():
    assert len(NAMES) == 7


@pytest.mark.filterwarnings("ignore::dask_dca.errors.MissingEntriesWarning")
@pytest.mark.usefixtures("unlaid")
@pytest.mark.parametrize("made", [lambda: dca.NMF(3), lambda: dca.GaussianMixture(3)])
def test_data_with_holes_have_a_page(made):
    rng = np.random.default_rng(0)
    X = rng.dirichlet(np.full(3, 0.4), 400) @ rng.random((3, 12))
    X[np.arange(400), rng.integers(12, size=400)] = np.nan  # no row is complete
    assert "400 rows" in words(dca.report(made().fit(X), data=X))
