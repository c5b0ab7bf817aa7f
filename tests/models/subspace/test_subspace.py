"""SubspaceClustering: conventions, invariance, input as people have it, and what it finds."""

import pickle

import dask.array as da
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.estimator_checks import check_estimator

import dask_dca as dca
from dask_dca.errors import FewerAnchorsWarning, InvalidInputError, InvalidParameterError, NotFiniteError
from dask_dca.models.subspace import fit as subspace_fit
from tests.conftest import raise_if_dask_computes

BITS = (
    "sketch_",
    "bases_",
    "axes_",
    "landmarks_",
    "nodes_",
    "centres_",
    "spectrum_",
    "anchor_indices_",
    "anchor_clusters_",
    "votes_",
    "components_",
    "coverage_by_cluster_",
    "cluster_sizes_",
    "ridge_",
)
MODELS = {
    "subspaces": {},
    "codes": {"max_iter": 0},
    "paper": {"method": "paper"},
}
EVERY = pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)


def cones(span, noise, seed, *, common, k=4, n=500, p=300, rays=10, dtype=np.float64):
    """
    The paper's protocol: rows with coefficients U[0, 1] on the rays of k cones, the rays among them, shuffled.

    Rays stand span / 2 degrees off their cone's centre. With `common` all cones have one centre, on which their rays
    balance, so that no mean tells them apart.
    """
    rng = np.random.default_rng(seed)
    half, shared, parts = np.deg2rad(span / 2), rng.standard_normal(p), []
    for _ in range(k):
        centre = shared if common else rng.standard_normal(p)
        centre = centre / np.linalg.norm(centre)
        sides = rng.standard_normal((rays, p))
        sides -= np.outer(sides @ centre, centre)
        sides -= sides.mean(axis=0) if common else 0.0
        sides /= np.linalg.norm(sides, axis=1, keepdims=True)
        F = rng.random((n, rays))
        F[:rays] = np.eye(rays)
        parts.append(F @ (np.cos(half) * centre + np.sin(half) * sides))
    X, labels = np.vstack(parts), np.repeat(np.arange(k), n)
    is_ray = np.tile(np.arange(n) < rays, k)
    X = X + noise * np.linalg.norm(X, axis=1, keepdims=True) / np.sqrt(p) * rng.standard_normal(X.shape)
    order = rng.permutation(len(X))
    return X[order].astype(dtype), labels[order], is_ray[order]


def accuracy(labels, found):
    table = np.zeros((labels.max() + 1, max(labels.max(), found.max()) + 1))
    np.add.at(table, (labels, found), 1)
    rows, columns = linear_sum_assignment(-table)
    return table[rows, columns].sum() / len(labels)


def bits(model):
    return {name: np.asarray(getattr(model, name)).tobytes() for name in BITS}


SMALL, TRUTH, _ = cones(60, 0.1, 0, common=False, k=3, n=60, p=24, rays=4)


# --- conventions ----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_own_checks_pass():
    results = check_estimator(dca.SubspaceClustering(), on_fail=None)
    assert not {r["check_name"]: repr(r["exception"]) for r in results if r["status"] == "failed"}


@EVERY
def test_what_a_fit_reports(options):
    model = dca.SubspaceClustering(3, 12, **options).fit(SMALL)
    assert model.labels_.dtype == np.int64
    assert model.labels_.shape == (180,)
    assert accuracy(TRUTH, model.labels_) == 1.0
    assert model.n_clusters_ == 3
    assert model.n_components_ == len(model.anchor_indices_) == 12
    np.testing.assert_array_equal(model.components_, SMALL[model.anchor_indices_])
    np.testing.assert_array_equal(np.bincount(model.labels_), model.cluster_sizes_)
    assert [rows.tolist() for rows in model.anchors_by_cluster_] == [
        model.anchor_indices_[model.anchor_clusters_ == i].tolist() for i in range(3)
    ]
    np.testing.assert_array_equal(model.labels_[model.anchor_indices_], model.anchor_clusters_)
    assert (model.vote_share_ <= 1.0).all()
    assert model.spectrum_[0] == pytest.approx(1.0)


def test_other_anchors_change_no_label():
    X = SMALL + 0.3 * np.random.default_rng(0).standard_normal(SMALL.shape)  # so that labels are not all right
    one, other = (dca.SubspaceClustering(3, count, n_subproblems=s).fit(X) for count, s in ((12, 200), (3, 6)))
    assert set(other.anchor_indices_) != set(one.anchor_indices_)
    assert accuracy(TRUTH, one.labels_) < 1.0
    np.testing.assert_array_equal(one.labels_, other.labels_)


@EVERY
def test_predict_gives_the_labels_of_fit_and_of_any_part(options):
    model = dca.SubspaceClustering(3, **options)
    labels = model.fit_predict(SMALL)
    np.testing.assert_array_equal(labels, model.labels_)
    np.testing.assert_array_equal(model.predict(SMALL), labels)
    for part in (slice(0, 1), slice(50, 57)):
        np.testing.assert_array_equal(model.predict(SMALL[part]), labels[part])
    np.testing.assert_array_equal(model.predict(SMALL * 7.0), labels)  # rows count by their direction


@EVERY
def test_chunked_labels_are_lazy_and_whole_ones_are_pickled(options, tmp_path):
    chunked = da.from_array(SMALL, chunks=(50, 10))
    model = dca.SubspaceClustering(3, **options)
    lazy = model.fit_predict(chunked)
    assert isinstance(lazy, da.Array)
    assert lazy.dtype == np.int64
    assert lazy.shape == (180,)
    with raise_if_dask_computes():
        model.predict(chunked)
    with pytest.raises(AttributeError, match="use predict"):
        _ = model.labels_
    whole = clone(model).fit(SMALL)
    np.testing.assert_array_equal(lazy.compute(), whole.labels_)
    again = pickle.loads(pickle.dumps(whole))
    np.testing.assert_array_equal(again.labels_, whole.labels_)
    np.testing.assert_array_equal(again.predict(SMALL), whole.labels_)
    whole.save(str(tmp_path / "m.zarr"))
    loaded = dca.load_model(str(tmp_path / "m.zarr"))
    assert bits(loaded) == bits(whole)
    np.testing.assert_array_equal(loaded.predict(SMALL), whole.labels_)


@EVERY
def test_words_and_facts(options):
    model = dca.SubspaceClustering(3, **options).fit(np.vstack([SMALL, np.zeros((2, 24))]))
    text = "\n".join(model._describe())
    assert "3 clusters" in text
    assert "2 rows are all zero" in text
    assert model._facts()["cluster_sizes"] == model.cluster_sizes_.tolist()
    assert len(model._facts()["anchors_by_cluster"]) == 3


def test_in_a_pipeline():
    assert accuracy(TRUTH, make_pipeline(Normalizer(), dca.SubspaceClustering(3)).fit_predict(SMALL)) == 1.0


# --- the same bits ----------------------------------------------------------------------------------------------


def test_scaling_rows_and_data_changes_no_label():
    rng = np.random.default_rng(0)
    whole = dca.SubspaceClustering(3).fit(SMALL)
    for scales in (np.ldexp(1.0, rng.integers(-60, 60, (180, 1))), 1e-200, 1e200):
        model = dca.SubspaceClustering(3).fit(SMALL * scales)
        np.testing.assert_array_equal(model.labels_, whole.labels_)
        np.testing.assert_array_equal(model.anchor_indices_, whole.anchor_indices_)


def test_seeds_differ_and_repeat():
    X, _, _ = cones(60, 0.3, 0, common=True, k=3, n=80, p=30, rays=4)
    fits = [dca.SubspaceClustering(3, random_state=seed).fit(X) for seed in (0, 0, 1)]
    assert bits(fits[0]) == bits(fits[1])
    assert bits(fits[0]) != bits(fits[2])


# --- unkind input ---------------------------------------------------------------------------------------------


@EVERY
def test_fewer_distinct_rows_than_clusters(options):
    """No more clusters than there are, and it says so (scikit-learn #10059)."""
    X = np.repeat(np.eye(3, 5), [30, 20, 10], axis=0)
    if "method" in options:
        labels = dca.SubspaceClustering(5, **options).fit(X).labels_
    else:
        with pytest.warns(FewerAnchorsWarning, match="only 3 of the 5 clusters"):
            labels = dca.SubspaceClustering(5, **options).fit(X).labels_
        assert len(set(labels)) == 3
    assert len(set(labels[:30])) == len(set(labels[30:50])) == len(set(labels[50:])) == 1


@EVERY
def test_one_cluster(options):
    model = dca.SubspaceClustering(1, 4, **options).fit(SMALL[TRUTH == 0])
    assert set(model.labels_) == {0}
    assert model.n_clusters_ == 1


@pytest.mark.parametrize("options", [{}, {"max_iter": 0}], ids=["subspaces", "codes"])
def test_a_cluster_with_one_row(options):
    X = np.vstack([np.hstack([np.random.default_rng(0).random((40, 3)) + 1.0, np.zeros((40, 3))]), np.eye(1, 6, 5)])
    model = dca.SubspaceClustering(2, **options).fit(X)
    assert (model.labels_[:40] == 0).all()
    assert model.labels_[40] == 1
    assert model.anchors_by_cluster_[1].tolist() == [40]


@EVERY
def test_zero_rows_have_no_cluster_and_all_zero_data_are_refused(options):
    X = np.vstack([np.zeros((5, 24)), SMALL, np.zeros((1, 24))])
    model = dca.SubspaceClustering(3, **options).fit(X)
    assert model.n_zero_rows_ == 6
    assert (model.labels_[[0, 4, -1]] == -1).all()
    assert accuracy(TRUTH, model.labels_[5:-1]) == 1.0
    assert model.cluster_sizes_.sum() == 180
    with pytest.raises(InvalidInputError, match="zero"):
        dca.SubspaceClustering(3, **options).fit(np.zeros((20, 4)))


@EVERY
def test_duplicated_rows_do_not_split_a_cluster(options):
    """Reported as scikit-learn #10059."""
    X = np.vstack([SMALL, np.repeat(SMALL[:4], 60, axis=0)])
    model = dca.SubspaceClustering(3, **options).fit(X)
    assert accuracy(np.concatenate([TRUTH, np.repeat(TRUTH[:4], 60)]), model.labels_) == 1.0


def test_copies_do_not_draw_centres():
    """Forty rows of one cone, sixty times each, where cones are hard to tell apart: without care accuracy is .4."""
    found = []
    for seed in range(2):
        X, labels, _ = cones(60, 0.2, seed, common=True, n=300, p=120)
        copied = np.flatnonzero(labels == 0)[:40]
        model = dca.SubspaceClustering(4).fit(np.vstack([X, np.repeat(X[copied], 60, axis=0)]))
        found.append(accuracy(labels, model.labels_[: len(X)]))
    assert np.mean(found) > 0.6


@EVERY
def test_two_rows_and_one_feature(options):
    assert len(dca.SubspaceClustering(1, **options).fit([[1.0, 2.0], [3.0, 4.0]]).labels_) == 2
    found = dca.SubspaceClustering(2, **options).fit(np.array([[1.0], [2.0], [-1.0], [-3.0]])).labels_
    assert found[0] == found[1] != found[2] == found[3]


@EVERY
def test_bad_entries_name_their_place_and_leave_no_model(options):
    X = SMALL.copy()
    X[77, 3] = np.inf
    for form in (X, da.from_array(X, chunks=(50, 24))):
        model = dca.SubspaceClustering(3, **options)
        with pytest.raises(NotFiniteError, match="row 77, column 3"):
            model.fit(form)
        assert not model.__sklearn_is_fitted__()
    model = dca.SubspaceClustering(3, **options).fit(SMALL)
    with pytest.raises(NotFiniteError, match="row 77, column 3"):
        model.predict(X)
    with pytest.raises(ValueError, match="expecting 24 features"):
        model.predict(SMALL[:, :5])


def test_entries_outside_the_sample_are_checked_too(monkeypatch):
    monkeypatch.setattr(subspace_fit, "_MAX_SAMPLE_ROWS", 32)
    for row in range(100, 110):
        X = SMALL.copy()
        X[row, 5] = np.inf
        with pytest.raises(NotFiniteError, match=f"infinity: row {row}, column 5"):
            dca.SubspaceClustering(3).fit(da.from_array(X, chunks=(50, 24)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_clusters": 0}, "n_clusters must be"),
        ({"n_clusters": 181}, "n_clusters=181 exceeds"),
        ({"n_components": "auto"}, "n_components must be None"),
        ({"damping": None}, "damping must be 'auto', or a power .* received None"),
        ({"damping": 1.0}, "damping must be"),
        ({"sketch_dim": 0}, "sketch_dim must be"),
        ({"max_iter": -1}, "max_iter must be"),
        ({"method": "best"}, "unknown method"),
        ({"ensemble": "unit"}, "method='paper'"),
    ],
)
def test_bad_parameters(options, words):
    with pytest.raises(InvalidParameterError, match=words):
        dca.SubspaceClustering(**options).fit(SMALL)


def test_more_anchors_than_the_cones_have_are_not_made_up():
    X = np.vstack([np.eye(2, 6)[[0, 1] * 20], np.eye(2, 6, 3)[[0, 1] * 20]]) + 0.0
    model = dca.SubspaceClustering(2, 30).fit(X)
    assert model.n_components_ <= 4


# --- what is found ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("span", "noise", "least", "seed"), [(30, 0.1, 0.97, 0), (90, 0.5, 0.9, 0)])
def test_cones_with_a_common_centre_are_told_apart(span, noise, least, seed):
    """k-means and the paper's own method are at chance here; codes alone reach .93 and .7."""
    X, labels, is_ray = cones(span, noise, seed, common=True)
    model = dca.SubspaceClustering(4, 40).fit(X)
    assert accuracy(labels, model.labels_) >= least
    assert is_ray[model.anchor_indices_].mean() >= 0.9
    assert accuracy(labels, KMeans(4, n_init=1, random_state=0).fit_predict(X)) < 0.4


@pytest.mark.parametrize(("span", "dtype"), [(30, np.float32), (120, np.float64)])
def test_the_papers_protocol(span, dtype):
    X, labels, is_ray = cones(span, 0.2, 2, common=False, dtype=dtype)
    model = dca.SubspaceClustering(4, 40).fit(X)
    assert accuracy(labels, model.labels_) >= 0.99
    assert is_ray[model.anchor_indices_].sum() >= 38
    assert (model.coverage_by_cluster_ > 0.95).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_the_papers_method_on_the_papers_protocol(seed):
    X, labels, is_ray = cones(90, 0.1, seed, common=False, n=200, p=100)
    model = dca.SubspaceClustering(4, 40, method="paper").fit(X)
    assert is_ray[model.anchor_indices_].mean() >= 0.8
    assert accuracy(labels[model.anchor_indices_], model.anchor_clusters_) >= 0.95
    assert accuracy(labels, model.labels_) >= 0.95


@pytest.mark.parametrize("k", [2, 4, 6])
def test_the_number_of_clusters_is_found_where_the_gap_is_clear(k):
    X, labels, _ = cones(60, 0.1, 3, common=False, k=k, n=150, p=100, rays=5)
    model = dca.SubspaceClustering().fit(X)
    assert model.n_clusters_ == k
    assert accuracy(labels, model.labels_) >= 0.99


def test_opposite_cones_are_two_clusters():
    rng = np.random.default_rng(0)
    rows = rng.random((100, 4)) @ (rng.standard_normal((4, 20)) + 3 * rng.standard_normal(20))
    model = dca.SubspaceClustering(2).fit(np.vstack([rows, -rows]))
    assert accuracy(np.repeat([0, 1], 100), model.labels_) == 1.0


def test_subspaces_with_rows_on_both_sides_are_one_cluster_each():
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((200, 5)) @ rng.standard_normal((5, 60)) for _ in range(3)]
    model = dca.SubspaceClustering(3).fit(np.vstack(rows))
    assert accuracy(np.repeat(np.arange(3), 200), model.labels_) >= 0.98


def test_a_sample_finds_what_all_rows_find(monkeypatch):
    X, labels, is_ray = cones(60, 0.2, 4, common=True, n=2000)
    monkeypatch.setattr(subspace_fit, "_MAX_SAMPLE_ROWS", 2000)
    model = dca.SubspaceClustering(4, 40).fit(da.from_array(X, chunks=(1500, 300)))
    assert accuracy(labels, model.predict(X)) >= 0.97
    assert is_ray[model.anchor_indices_].mean() >= 0.9  # anchors come from all rows
    assert model.cluster_sizes_.sum() == 8000


def test_unequal_clusters():
    X, labels, _ = cones(60, 0.1, 5, common=False, k=3, n=400, p=80, rays=5)
    keep = (labels == 0) | ((labels == 1) & (np.arange(1200) % 4 == 0)) | ((labels == 2) & (np.arange(1200) % 20 == 0))
    model = dca.SubspaceClustering(3).fit(X[keep])
    assert accuracy(labels[keep], model.labels_) >= 0.98


def test_codes_are_spread_where_the_graph_has_no_clear_parts():
    """Noise of half a row's norm: the nearest rows are often foreign, and only many of them together tell."""
    X, labels, _ = cones(90, 0.5, 0, common=True)
    plain = dca.SubspaceClustering(4, max_iter=0, damping=0).fit(X)
    auto = dca.SubspaceClustering(4, max_iter=0).fit(X)
    assert plain.spectrum_[3] < 0.85
    assert (plain.ridge_, auto.ridge_) == (0.1, 0.3)
    assert accuracy(labels, auto.labels_) >= accuracy(labels, plain.labels_) + 0.02
    np.testing.assert_array_equal(auto.predict(X), auto.labels_)


def test_clear_graphs_are_left_as_they_are():
    X, _, _ = cones(60, 0.2, 0, common=False, n=200)
    auto, plain = (dca.SubspaceClustering(4, max_iter=0, damping=damping).fit(X) for damping in ("auto", 0.0))
    assert plain.spectrum_[3] > 0.85
    assert bits(auto) == bits(plain)


def test_light_on_faces_is_damped():
    """The same shapes under lights that take most of the energy."""
    rng = np.random.default_rng(0)
    lights = np.linalg.qr(rng.standard_normal((200, 4)))[0].T
    shapes = [np.linalg.qr(rng.standard_normal((200, 3)))[0].T for _ in range(8)]
    X = np.vstack([rng.random((40, 3)) @ shape + 3 * rng.random((40, 4)) @ lights for shape in shapes])
    labels = np.repeat(np.arange(8), 40)
    plain = accuracy(labels, dca.SubspaceClustering(8, max_iter=0).fit(X).labels_)
    damped = accuracy(labels, dca.SubspaceClustering(8, max_iter=0, damping=0.25, sketch_dim=32).fit(X).labels_)
    assert damped >= plain
    assert damped >= 0.9


def test_rows_without_any_entry_are_told():
    with pytest.raises(InvalidInputError, match="no observed entry in the sample of 20 rows"):
        dca.SubspaceClustering(2).fit(np.full((20, 3), np.nan))
