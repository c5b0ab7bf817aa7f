"""Data, peers, scores and pictures of the mixture benchmarks; the benchmarks themselves are run by test_peers."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from benchmarks import mixture_data, mixture_peers, mixture_scores, mixtures, report
from benchmarks.methods import MissingError
from benchmarks.mixture_data import Sample
from benchmarks.mixture_peers import MAIN, Fit

PEERS = ["kmeans x1", "kmeans x10", "em x1", "em ++ x2", "em truth", "moments", "moments_views"]


@pytest.fixture(scope="module")
def easy():
    """Four spherical clusters of unequal weight, far apart, in three views."""
    rng = np.random.default_rng(0)
    k, widths = 4, (6, 5, 7)
    means = 4.0 * rng.standard_normal((k, sum(widths))) + 1.0
    weights = np.array([0.4, 0.3, 0.2, 0.1])
    labels = rng.choice(k, 20_000, p=weights)
    X = means[labels] + rng.standard_normal((len(labels), sum(widths)))
    edges = np.cumsum([0, *widths])
    views = [slice(a, b) for a, b in pairwise(edges)]
    return Sample(X, labels, k, means, weights, np.ones_like(means), np.arange(k), views)


@pytest.mark.parametrize("method", PEERS)
def test_peers_recover_an_easy_mixture(easy, method):
    found = mixture_peers.fit(method, easy, "spherical", 0)
    assert found.means.shape == easy.means.shape
    if method in ("kmeans x1", "em x1"):  # one start may be stuck
        return
    assert mixture_scores.mean_scores(easy, found)["error"] < 0.05
    assert adjusted_rand_score(easy.labels, found.labels) > 0.99
    if method.startswith("em"):
        assert found.score(easy.X) == pytest.approx(-27.0, abs=1.0)


def test_moments_without_noise_are_exact():
    """Hsu and Kakade's equations hold for any rows that equal their means: variance zero."""
    rng = np.random.default_rng(1)
    means = rng.standard_normal((3, 9)) + 0.5
    labels = np.repeat(np.arange(3), [50, 30, 20])
    data = Sample(means[labels], labels, 3, means, planted=np.arange(3))
    for method in ("moments", "moments_views"):
        found = mixture_peers.fit(method, data, "spherical", 0)
        assert mixture_scores.mean_scores(data, found)["error"] < 1e-5, method


def test_moment_methods_work_with_random_views_and_wide_data():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((30, 60))
    data = Sample(X, np.arange(30) % 3, 3)
    for method in ("moments", "moments_views"):
        assert len(mixture_peers.fit(method, data, "spherical", 0).labels) == 30


def test_the_papers_rows_are_shuffled_and_hold_the_means():
    data = mixture_data.paper(0.5, 0.3, 0)
    assert data.X.shape == (2005, 480)
    assert np.bincount(data.labels).tolist() == [301, 501, 401, 301, 501]
    np.testing.assert_array_equal(data.X[data.planted], data.means)
    assert data.planted.min() > 4
    rest = np.delete(np.arange(2005), data.planted)
    assert (data.X - data.means[data.labels])[rest].var() == pytest.approx(0.5 + 0.09, rel=0.01)
    assert [view.stop - view.start for view in data.views] == [200, 120, 160]
    assert not np.array_equal(data.X, mixture_data.paper(0.5, 0.3, 1).X)


@pytest.mark.parametrize("name", mixture_data.UNEQUAL)
def test_unequal_mixtures_are_what_they_say(name):
    data = mixture_data.unequal(name, 3)
    assert data.X.shape == data.test.shape == (3000, 30)
    assert data.weights.sum() == pytest.approx(1)
    assert data.weights.max() > 1.5 * data.weights.min()
    own = np.log10(data.variances / data.variances.prod(axis=0) ** (1 / data.k))
    assert 0.4 < np.ptp(own) < 2.2
    within = (data.X - data.means[data.labels]) ** 2 / data.variances[data.labels]
    assert within.mean() == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("name", mixture_data.SMALL)
def test_small_sets_are_shuffled_by_the_seed(name):
    one, other = (mixture_data.small(name, seed) for seed in range(2))
    assert one.X.shape == other.X.shape
    assert one.k == len(np.unique(one.labels))
    assert not np.array_equal(one.labels, other.labels)


def test_missing_images_are_said_plainly(monkeypatch):
    monkeypatch.delenv("DASK_DCA_DATA", raising=False)
    mixture_data.images.cache_clear()
    with pytest.raises(MissingError, match="set DASK_DCA_DATA"):
        mixture_data.images("YALE", 5)


def test_scores_match_clusters_with_classes():
    X = np.array([[0.0], [1.0], [10.0], [11.0], [12.0]])
    data = Sample(X, np.array([0, 0, 1, 1, 1]), 2, np.array([[0.5], [11.0]]), planted=np.array([0, 3]))
    found = mixture_scores.scores(data, Fit(X[:2], np.array([7, 7, 3, 3, 7])))
    assert found["accuracy"] == pytest.approx(0.8)
    assert found["inertia"] == pytest.approx(0.5 + sum((x - 13 / 3) ** 2 for x in (0, 1, 12)))
    perfect = mixture_scores.scores(data, Fit(X[:2], np.array([1, 1, 0, 0, 0])))
    assert [perfect[name] for name in ("accuracy", "information", "rand")] == [1, 1, 1]


def test_scores_of_means_ignore_their_order_and_count_missing_ones():
    means = np.array([[3.0, 0.0], [0.0, 4.0]])
    data = Sample(np.vstack([means, [[9.0, 9.0]]]), np.array([0, 1, 0]), 2, means, planted=np.array([0, 1]))
    labels = data.labels
    swapped = mixture_scores.mean_scores(data, Fit(means[::-1], labels))
    assert swapped == {"error": pytest.approx(0.0, abs=1e-7), "anchors": 1.0}
    one = mixture_scores.mean_scores(data, Fit(means[:1], labels, anchors=np.array([2])))
    assert one == {"error": pytest.approx(0.8), "anchors": 0.0}


def record(method, value, **more):
    return {"variance": 4.2, "noise": 0.3, "method": method, "accuracy": value, "seconds": 1.0} | more


def test_the_phase_boundary_is_compared_where_peers_ran():
    benchmark = mixtures.PaperGrid(quick=True)
    records = [record(MAIN, 0.91), record("kmeans x10", 0.95), record(MAIN, 0.85, noise=0.6)]
    assert benchmark.check(records)[0].met
    lost = [*records, record("em x1", 0.92, noise=0.6)]
    assert benchmark.check(lost)[0].value == "1 of 2 cells lost: variance 4.2 noise 0.6"
    assert benchmark.check([])[0].met is None


def test_peers_run_on_every_third_value():
    benchmark = mixtures.PaperGrid()
    assert len(benchmark.cases) == 900 * len(benchmark.methods)
    cells = [(v, z) for v in mixtures.VARIANCES for z in mixtures.NOISES]
    ran = [cell for cell in cells if benchmark.runs(*cell, "em x1")]
    assert len(ran) == 100
    assert ran[0] == (0.6, 0.0)
    assert all(benchmark.runs(*cell, MAIN) for cell in cells)
    with pytest.raises(MissingError):
        benchmark.setup(0.2, 0.0, 0, "em x1")


def test_cells_are_compared_with_a_margin():
    records = [record(MAIN, 0.90), record("em", 0.91), record(MAIN, 0.8, variance=1.0), record("em", 0.9, variance=1.0)]
    arguments = (records, ("variance",), "accuracy", "em")
    assert mixture_scores.compare(*arguments, 0.02, ">=").value == "1 of 2 cells lost: 1.0 (0.800 < 0.900)"
    assert mixture_scores.compare(*arguments, 0.02, ">=", 3.0).met
    assert not mixture_scores.compare(*arguments, 0.0, ">=", 3.0).met
    assert mixture_scores.compare(records, ("variance",), "likelihood", "em", 0.0, ">=").met is None


def test_the_share_of_time_is_the_worst_sets():
    records = [
        {"set": name, "k": 5, "rows": rows, "method": method, "seconds": seconds}
        for name, rows, own in (("a", 2000, 0.4), ("b", 6000, 0.3), ("c", 100, 9.0))
        for method, seconds in ((MAIN, own), ("kmeans x10", 1.0))
    ]
    assert mixture_scores.share_of_time(records, 1400, 0.5).met
    assert mixture_scores.share_of_time(records, 5000, 0.2).value == "greatest share 0.30 (b, k = 5)"
    assert mixture_scores.share_of_time(records, 10_000, 0.2).met is None


def test_grids_are_drawn_with_holes(tmp_path):
    records = [
        record(method, 1 - 0.1 * variance * noise, variance=variance, noise=noise, error=0.5, anchors=1.0)
        for method, step in ((MAIN, 1), ("kmeans x10", 3))
        for variance in range(1, 10, step)
        for noise in range(0, 9, step)
    ]
    heat = {"title": "t", "x": "noise", "y": "variance", "values": ["accuracy", "error", "seconds"], "level": None}
    for name, plot in (("heat", heat), ("line", heat | {"values": ["accuracy"], "level": 0.7})):
        report.draw_grid(plot, records, tmp_path / f"{name}.png", "Q4")
        assert (tmp_path / f"{name}.png").stat().st_size > 5000
    xs, ys, rows = report._map(heat, records, "accuracy", "kmeans x10")
    assert (xs, ys) == ([0, 3, 6], [1, 4, 7])
    assert rows[1][2] == pytest.approx(1 - 0.1 * 4 * 6)
