"""The baselines find all anchors of noiseless separable data; every benchmark runs once, small."""

import json
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest
from scipy.optimize import nnls

import dask_dca
from benchmarks import __main__ as cli
from benchmarks import harness, leastsquares, methods, regimes, report, scores
from benchmarks.peers import PEERS, SMALL_PEERS, least_ellipsoid, sisal, vca
from benchmarks.scores import angles
from benchmarks.speed import no_graph

SIZES = (120, 30, 5)


@pytest.mark.parametrize("name", [*PEERS, *SMALL_PEERS])
@pytest.mark.parametrize("regime", ["dirichlet1", "sparse"])
def test_baseline_finds_every_anchor_without_noise(name, regime):
    X, anchors = regimes.make(regime, *SIZES, 0.0, 0)
    indices = (PEERS | SMALL_PEERS)[name](X, 5, 0)
    assert len(set(indices.tolist())) == 5
    assert regimes.recall(indices, anchors) == 1


@pytest.mark.parametrize("name", sorted(PEERS.keys() - {"spa_raw"}))
def test_baseline_is_not_misled_by_row_scales_without_noise(name):
    X, anchors = regimes.make("rowscale", *SIZES, 0.0, 0)
    assert regimes.recall(PEERS[name](X, 5, 0), anchors) == 1


@pytest.mark.parametrize("regime", regimes.REGIMES)
def test_regime_is_deterministic_has_its_noise_and_its_pure_rows(regime):
    noiseless = regimes.plant(regime, 400, 50, 4, 0.0, 3)
    noisy, again = (regimes.plant(regime, 400, 50, 4, 0.3, 3) for _ in range(2))
    np.testing.assert_array_equal(noisy.X, again.X)
    assert noisy.X.dtype == np.float64
    relative = np.linalg.norm(noisy.X - noisy.clean) / np.linalg.norm(noisy.clean)
    assert relative == pytest.approx(0.3, rel=0.05 if regime == "poisson" else 1e-9)
    first = [rows[0] for rows in noiseless.anchors]
    assert scores.angles(noiseless.X[first], noiseless.W).diagonal().max() < (2 if "near" in regime else 1e-4)
    for a, b in zip(noisy.anchors, noiseless.anchors, strict=True):
        np.testing.assert_array_equal(a, b)


def test_rows_are_scattered():
    _, anchors = regimes.make("dirichlet1", 1000, 20, 5, 0.1, 0)
    assert not {0, 1, 2, 3, 4} & {int(rows[0]) for rows in anchors}


def test_recall_takes_one_row_or_several_a_ray():
    assert regimes.recall(np.array([1, 7]), np.array([7, 3])) == 0.5
    assert regimes.recall(np.array([1, 7]), [np.array([7, 9]), np.array([2, 1])]) == 1


def test_least_squares_solvers_reach_the_optimum():
    rng = np.random.default_rng(0)
    B, X = rng.random((4, 9)), rng.random((30, 9))
    H = leastsquares.nonnegative(B @ B.T, B @ X.T, sweeps=2000, tol=1e-12).T
    np.testing.assert_allclose(H, [nnls(B.T, x)[0] for x in X], atol=1e-6)
    S = leastsquares.projected(B @ B.T, B @ X.T, leastsquares.simplex, steps=5000, tol=1e-12).T
    np.testing.assert_allclose(S.sum(axis=1), 1)
    gradient = (S @ B - X) @ B.T  # at the optimum: equal where S > 0, not less elsewhere
    assert np.all((gradient - gradient.min(axis=1, keepdims=True))[S > 1e-6] < 1e-4)


def test_least_ellipsoid_holds_all_rows_and_touches_some():
    Z = np.random.default_rng(0).standard_normal((200, 3)) * [5, 1, 0.2]
    g = np.einsum("ij,jk,ik->i", Z, np.linalg.inv(least_ellipsoid(Z)), Z)
    assert g.max() == pytest.approx(3, rel=2e-3)


def test_scores_ignore_order_and_scale():
    rng = np.random.default_rng(0)
    M, A = rng.random((3, 8)), rng.dirichlet(np.ones(3), size=50)
    score = scores.unmixing(A @ M, M[[2, 0, 1]], M, A)
    assert max(score.values()) < 1e-4
    assert scores.recovery_error(2 * M[[1, 2, 0]], M) < 1e-12


def test_library_columns_pass_their_options(monkeypatch):
    calls = []

    def find_anchors(X, k, **options):
        calls.append(options)
        return SimpleNamespace(indices=PEERS["spa"](X, k))

    monkeypatch.setitem(vars(dask_dca), "find_anchors", find_anchors)
    X, anchors = regimes.make("dirichlet1", *SIZES, 0.0, 0)
    assert all(regimes.recall(methods.find(name, X, 5, 7), anchors) == 1 for name in methods.LIBRARY)
    assert calls[:2] == [{"random_state": 7}, {"random_state": 7, "method": "paper"}]
    assert [call["n_subproblems"] for call in calls[2:]] == [9, 17, 41, 81, 161]


def test_requirements_compare_cell_by_cell():
    record = {"regime": "r", "n": 1, "p": 1, "k": 1, "seed": 0, "error": 0.0, "worst_angle": 0.0}
    values = {("dask_dca", 0.0): 0.5, ("spa", 0.0): 0.6, ("dask_dca", 0.1): 1.0, ("spa", 0.1): 1.0}
    records = [record | {"method": m, "noise": z, "recall": v, "seconds": 1.0} for (m, z), v in values.items()]
    cells, overall, speed = cli.BENCHMARKS["Q1-regimes"](quick=True).check(records)
    assert cells.value == "1 of 2 cells lost: r 0.0 (0.50 < 0.60)"
    assert cells.met is False
    assert overall.met is False
    assert speed.met is None


def test_graphs_are_refused():
    with pytest.raises(AssertionError, match="graph"), no_graph():
        da.ones(3, chunks=1).sum().compute()


def test_speed_is_a_ratio_of_turns(monkeypatch):
    class NMF:
        def __init__(self, k, random_state):
            self.k = k

        def fit(self, X):
            PEERS["spa"](X, self.k)
            return self

    monkeypatch.setitem(vars(dask_dca), "NMF", NMF)
    documents = [harness.run(cli.BENCHMARKS[name](quick=True)) for name in ("S2", "S3")]
    assert [record["method"] for record in documents[0]["records"]] == ["spa", "NMF.fit"]
    assert all(check["met"] is not None for document in documents for check in document["checks"])


# Whose small runs take long, or are contained in S6-holes and S14: make soak has them.
SOAK = {"soak", "chunkings", "mutations", "profile", "streams", "S6-holes", "S6-soak", "S14", "S15", "S16", "S17"}
CLUSTER = {"S13", "Q8-hmm-scale", "S1", "S5", "S8", "S10"}


@pytest.mark.usefixtures("unlaid")
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.cluster) if n in CLUSTER else n for n in cli.BENCHMARKS if n not in SOAK],
)
def test_benchmark_runs_once_small(name, tmp_path):
    document = harness.run(cli.BENCHMARKS[name](quick=True))
    failed = [record for record in document["records"] if "failed" in record]
    assert not failed
    assert document["records"] or document["missing"]
    harness.save(document, tmp_path)
    assert json.loads((tmp_path / f"{name}.json").read_text()) == document
    report.write(tmp_path, tmp_path / "RESULTS.md")
    text = (tmp_path / "RESULTS.md").read_text()
    assert document["title"] in text
    for missing in document["missing"]:
        assert missing in text
    drawn = document["records"] and any(plot["where"] is None for plot in document["plots"])
    assert (tmp_path / f"{name}-1.png").exists() or not drawn


def test_missing_data_is_said_plainly(monkeypatch):
    monkeypatch.delenv("DASK_DCA_DATA", raising=False)
    document = harness.run(cli.BENCHMARKS["Q3-samson"](quick=True))
    assert not document["records"]
    assert any("set DASK_DCA_DATA" in text for text in document["missing"])


def test_names_select_benchmarks():
    assert cli.select(["Q3-samson", "Q3-usgs"]) == ["Q3-samson", "Q3-usgs"]
    assert set(cli.select(["Q3"])) == {"Q3-samson", "Q3-usgs", "Q3-library", "Q3-lacking", "Q3-oracle"}
    assert cli.select([]) == [name for name in cli.BENCHMARKS if name not in cli.ALONE]
    with pytest.raises(SystemExit, match="unknown benchmark Q99"):
        cli.select(["Q1", "Q99"])


def test_sisal_finds_vertices_that_no_row_is():
    rng = np.random.default_rng(0)
    rays, shares = rng.random((4, 20)), rng.dirichlet(np.ones(4), 4000)
    X = shares[shares.max(axis=1) < 0.75] @ rays
    assert angles(sisal(X, 4), rays).min(axis=0).max() < 0.5 < 5.0 < angles(X[vca(X, 4)], rays).min(axis=0).mean()
