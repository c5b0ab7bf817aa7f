"""Sub-problems by any solver: the same bits for any chunking, the anchors of separable data, and honest votes."""

import os
import signal
from dataclasses import dataclass

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_dca as dca
from dask_dca.anchoring.hyperplanes import Hyperplanes, Pool, _HyperplaneSubproblems, solve_subproblems
from dask_dca.engine.passes import Run
from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.solvers import SOLVERS, hull_rows, solve
from tests.conftest import bits, planted
from tests.strategies import chunkings, matrices

pytestmark = [
    pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning"),
    pytest.mark.filterwarnings("ignore::dask_dca.errors.NotPointedWarning"),
]


def hyperplanes(count=6, d=3, dim=5, each=2):
    scales = np.linspace(3.0, 1.0, dim)
    return Hyperplanes("mixed", 7, count * each, 10, dim, scales, n_axes=d - 1, each=each)


def nearest_to_the_middle(points, n_anchors):
    """A solver of a user's own, and a bad one."""
    return np.argsort(((points - points.mean(axis=0)) ** 2).sum(axis=1))[:n_anchors]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("dim", [2, 3, 6])
def test_every_solver_inside_finds_the_anchors(solver, dim):
    X, anchors = planted(1500, 30, 6, seed=dim, noise=0.02)
    found = dca.find_anchors(X, 6, dim=dim, solver=solver)
    assert sorted(found.indices) == anchors.tolist()
    assert found.coverage > 0.99
    assert (found.votes > 0).all()
    assert (found.votes <= found.n_subproblems).all()
    assert found.vote_share == pytest.approx(found.votes / found.n_subproblems)


def test_more_rays_than_dimensions_of_a_subproblem():
    X, anchors = planted(1500, 40, 20, seed=1)
    for solver in ("spa", "xray", "lp"):
        found = dca.find_anchors(X, 20, dim=4, solver=solver)
        assert sorted(found.indices) == anchors.tolist()


@given(data=st.data(), solver=st.sampled_from(["spa", "xray-rand", "lp", "greedy"]), dim=st.integers(2, 5))
@settings(max_examples=15)
def test_any_chunking_gives_the_same_bits(data, solver, dim):
    matrix = data.draw(matrices(max_rows=80))
    X, k = matrix.X, matrix.k
    if not X.any():
        return
    chunks = (data.draw(chunkings(X.shape[0])), data.draw(chunkings(X.shape[1], most=3, empty=False)))
    with dask.config.set(scheduler="synchronous"):
        parts = dca.find_anchors(da.from_array(X, chunks=chunks), k, dim=dim, solver=solver, n_subproblems=5)
    assert bits(parts) == bits(dca.find_anchors(X, k, dim=dim, solver=solver, n_subproblems=5))


@pytest.mark.parametrize("selection", ["candidates", "votes"])
def test_schedulers_and_containers_agree(tmp_path, selection):
    X, _ = planted(2000, 20, 5, noise=0.05, dtype=np.float32)
    whole = dca.find_anchors(X, 5, dim=3, solver="xray", selection=selection)
    stored = zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(170, 7))
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler):
            for form in (stored, da.from_array(X, chunks=((1, 0, 999, 1000), 11))):
                assert bits(dca.find_anchors(form, 5, dim=3, solver="xray", selection=selection)) == bits(whole)


@dataclass(frozen=True)
class KillsItsWorkerOnce:
    """A solver whose first call, of all workers', ends the process that it runs in."""

    marker: str

    def __call__(self, points, n_anchors):
        try:
            with open(self.marker, "x"):
                os.kill(os.getpid(), signal.SIGKILL)
        except FileExistsError:
            return solve("spa", points, n_anchors)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_worker_processes_agree_even_if_one_dies(tmp_path):
    X, _ = planted(2000, 20, 5, noise=0.05)
    chunked = da.from_array(X, chunks=(300, -1))
    whole = dca.find_anchors(X, 5, dim=4, solver="spa")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        Client(cluster),
    ):
        assert bits(dca.find_anchors(chunked, 5, dim=4, solver="spa")) == bits(whole)
        dying = KillsItsWorkerOnce(str(tmp_path / "killed"))
        assert bits(dca.find_anchors(chunked, 5, dim=4, solver=dying)) == bits(whole)
        inside = dca.in_cone(chunked, X[whole.indices], exact=True)
        np.testing.assert_array_equal(inside.compute(), dca.in_cone(X, X[whole.indices], exact=True))
    assert (tmp_path / "killed").exists()


def test_subproblems_are_tasks_on_chunked_data(computes):
    X, anchors = planted(400, 12, 3)
    found = dca.find_anchors(da.from_array(X, chunks=(100, -1)), 3, dim=3, solver="spa")
    assert sorted(found.indices) == anchors.tolist()
    assert computes.passes[-3:] == ["divide", "solve", "fetch"]


def test_directions_lie_in_their_hyperplanes_and_are_regenerated_alike():
    planes = hyperplanes(count=6, d=3, dim=5, each=4)
    found = planes.regenerate()
    np.testing.assert_array_equal(found, planes.regenerate())
    assert found.shape == (6 * 4 + 10, 5)
    assert (found == np.rint(found)).all()
    for t in range(6):
        basis = np.linalg.qr(planes.axes(np.array([t]))[0].T)[0]
        own = found[4 * t : 4 * t + 4]
        np.testing.assert_allclose(own @ basis @ basis.T, own, atol=2.0)
    np.testing.assert_array_equal(planes.axes(np.array([4]))[0], planes.axes(np.arange(6))[4])


def test_votes_count_the_subproblems_that_chose_a_row():
    rng = np.random.default_rng(0)
    pool = Pool(np.arange(10, 40), np.rint(rng.standard_normal((30, 5)) * 2**20))
    planes = hyperplanes(count=50)
    rows, votes = solve_subproblems(_HyperplaneSubproblems, "lp", 30, Run(), pool, planes, spread=False)
    expected = np.zeros(40, dtype=int)
    for t in range(50):
        basis = np.linalg.qr(planes.axes(np.array([t]))[0].T)[0]
        points = np.hstack([np.ones((30, 1)), pool.positions @ basis / 2**20])
        expected[10 + solve("lp", points, 30)] += 1
    assert rows.tolist() == np.flatnonzero(expected).tolist()
    assert votes.tolist() == expected[rows].tolist()
    assert 0 < votes.min() < 10 < votes.max() <= 50


@given(
    seed=st.integers(0, 10**6), n=st.integers(1, 40), d=st.integers(2, 6), solver=st.sampled_from(["spa", "xray", "lp"])
)
@settings(max_examples=40)
def test_rows_inside_the_hull_can_be_left_out(seed, n, d, solver):
    """What makes the reduction lossless for these solvers: the same rays with and without the rows inside."""
    rng = np.random.default_rng(seed)
    points = np.hstack([np.ones((n, 1)), rng.standard_normal((n, d - 1))])
    some = hull_rows(points)
    assert sorted(some[solve(solver, points[some], n)]) == sorted(solve(solver, points, n))


def test_hull_rows_of_degenerate_points():
    line = np.column_stack([np.ones(9), np.arange(9.0), np.zeros(9)])
    assert {0, 8} <= set(hull_rows(line))
    assert hull_rows(np.ones((5, 4))).tolist() == [0]
    square = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [1, 0.5, 0.5], [1, 0, 0]], dtype=float)
    assert hull_rows(square).tolist() == [0, 1, 2, 3]


def test_a_solver_of_ones_own():
    X, anchors = planted(600, 15, 4)
    spa = dca.find_anchors(X, 4, dim=4, solver=lambda points, n_anchors: solve("spa", points, n_anchors))
    assert sorted(spa.indices) == anchors.tolist()
    bad = dca.find_anchors(X, 4, dim=4, solver=nearest_to_the_middle, selection="votes")
    assert bits(bad) != bits(spa)


@pytest.mark.parametrize("answer", [np.array([0.5]), np.array([-1]), np.array([10**6]), np.array(["a"])])
def test_a_solver_that_returns_nonsense_is_named(answer):
    X, _ = planted(100, 8, 3)
    with pytest.raises(InvalidParameterError, match="the solver must return indices"):
        dca.find_anchors(X, 3, dim=3, solver=lambda points, n_anchors: answer)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 3}, "solver='plane' is the closed form"),
        ({"dim": 1, "solver": "spa"}, "dim must be"),
        ({"dim": 51, "solver": "spa"}, "dim=51 is above 50"),
        ({"dim": 2.5, "solver": "spa"}, "dim must be"),
        ({"solver": "sfo"}, "unknown solver 'sfo'"),
        ({"solver": "spa", "method": "paper"}, "robust method"),
        ({"solver": "spa", "ensemble": "unit"}, "draws planes only"),
    ],
)
def test_unusable_combinations_say_how_to_go_on(options, message):
    X, _ = planted(50, 6, 3)
    with pytest.raises(InvalidParameterError, match=message):
        dca.find_anchors(X, 3, **options)


def test_number_of_anchors_and_degenerate_data():
    X, anchors = planted(800, 20, 4)
    assert sorted(dca.find_anchors(X, "auto", dim=3, solver="spa").indices) == anchors.tolist()
    same = np.tile(X[:1], (20, 1))
    assert len(dca.find_anchors(same, 3, dim=3, solver="xray").indices) == 1
    assert len(dca.find_anchors(X[:, :1], 2, dim=4, solver="lp").indices) == 1
    with_zeros = np.vstack([np.zeros((5, 20)), X])
    found = dca.find_anchors(with_zeros, 4, dim=3, solver="lp")
    assert sorted(found.indices) == (anchors + 5).tolist()
    assert found.n_zero_rows == 5
    signed = X - 0.3 * X.mean(axis=0)
    assert sorted(dca.find_anchors(signed, 4, dim=4, solver="spa").indices) == anchors.tolist()
