"""`find_anchors` with Y and a solver in d dimensions, against the sub-problems formed explicitly."""

import dask
import dask.array as da
import numpy as np
import pytest

import dask_dca as dca
from dask_dca.anchoring import hyperplanes
from dask_dca.anchoring.parameters import check_settings
from dask_dca.errors import InvalidInputError, InvalidParameterError, NotFiniteError
from dask_dca.geometry.planes import plane_pairs
from dask_dca.geometry.separation import minimal_hull
from tests.conftest import bits, raise_if_dask_computes

pytestmark = pytest.mark.filterwarnings("ignore::dask_dca.errors.FewerAnchorsWarning")


def planted(k=4, p=8, seed=0):
    """X in the cone of k rays; Y holds the rays, rows inside, and rows far out."""
    rng = np.random.default_rng(seed)
    rays = rng.random((k, p)) + np.eye(k, p)
    X = np.vstack([rng.dirichlet(np.full(k, 0.3), 40) @ rays, rays])
    Y = np.vstack([rng.dirichlet(np.ones(k), 15) @ rays, rays, 3.0 * rays - 2.0 * rays.mean(axis=0)])
    return X, Y, np.arange(15, 15 + k)


@pytest.mark.parametrize("dim", [3, 4])
@pytest.mark.parametrize("ensemble", ["gaussian", "data", "sparse"])
def test_votes_are_those_of_sub_problems_formed_explicitly(dim, ensemble):
    X, Y, _ = planted()
    found = dca.find_anchors(
        X, 4, Y=Y, method="paper", dim=dim, solver="lp", ensemble=ensemble, n_subproblems=12, random_state=3
    )
    seed = check_settings("paper", 12, ensemble, "auto", 3).seed
    largest = np.ldexp(X, -np.frexp(np.abs(X).max(axis=1))[1][:, None])  # the few rows are all of the sample
    pairs = plane_pairs(ensemble, seed, np.arange(24), 8, largest)
    pairs = pairs.toarray().reshape(2, 24, 8) if ensemble == "sparse" else pairs
    votes = np.zeros(len(Y), dtype=int)
    for t in range(12):
        Phi = np.array([pairs[0, 2 * t], pairs[1, 2 * t], pairs[0, 2 * t + 1], pairs[1, 2 * t + 1]])[:dim].T
        votes[minimal_hull(X @ Phi, Y @ Phi)] += 1
    assert found.candidates.tolist() == np.flatnonzero(votes).tolist()
    assert found.candidate_votes.tolist() == votes[votes > 0].tolist()
    assert found.n_subproblems == 12
    np.testing.assert_array_equal(found.rows, Y[found.indices])


@pytest.mark.parametrize("solver", ["lp", "xray"])
@pytest.mark.parametrize("seed", range(3))
def test_planted_anchors_are_found_in_as_many_dimensions_as_they_span(solver, seed):
    X, Y, anchors = planted(p=4, seed=seed)
    found = dca.find_anchors(X, 4, Y=Y, method="paper", dim=4, solver=solver, n_subproblems=5)
    assert sorted(found.indices.tolist()) == anchors.tolist()
    assert found.n_pointed == 5
    assert (found.votes >= (5 if solver == "lp" else 4)).all()


def test_a_solver_of_ones_own_gets_both_sets_of_points():
    X, Y, _ = planted()
    seen = []

    def solver(covered, points, n_anchors):
        seen.append((covered.shape, points.shape, n_anchors))
        return [2, 5, 5]

    found = dca.find_anchors(X, 2, Y=Y, method="paper", dim=5, solver=solver, n_subproblems=7)
    assert seen == [((44, 5), (23, 5), 2)] * 7
    assert found.indices.tolist() == [2, 5]
    assert found.votes.tolist() == [7, 7]
    with pytest.raises(InvalidParameterError, match="indices of its 23 points"):
        dca.find_anchors(X, 2, Y=Y, method="paper", dim=3, solver=lambda X, Y, k: [23])
    with pytest.raises(InvalidInputError, match="no row of Y covers any row of X"):
        dca.find_anchors(X, 2, Y=Y, method="paper", dim=3, solver=lambda X, Y, k: [])


def test_chunks_and_graphs_change_no_bit():
    X, Y, _ = planted()
    options = {"method": "paper", "dim": 3, "solver": "xray", "n_subproblems": 70}
    whole = dca.find_anchors(X, 4, Y=Y, **options)
    for chunks in ((10, 8), (44, 3), (1, -1)):
        parts = dca.find_anchors(da.from_array(X, chunks=chunks), 4, Y=da.from_array(Y, chunks=(5, -1)), **options)
        assert bits(parts) == bits(whole)
    with raise_if_dask_computes():
        delayed = dca.find_anchors(X, 4, Y=Y, compute=False, **options)
    (built,) = dask.compute(delayed, scheduler="synchronous")
    assert bits(built) == bits(whole)


def test_what_can_not_be_is_refused_with_the_line_that_fixes_it(monkeypatch):
    X, Y, _ = planted()
    options = {"Y": Y, "method": "paper", "dim": 3, "solver": "lp"}
    for change, match in (
        ({"solver": "spa"}, "for Y use 'lp', 'xray'"),
        ({"method": "robust"}, "for Y use method='paper'"),
        ({"solver": "plane"}, "closed form in two dimensions"),
        ({"n_anchors": "auto"}, "pass an integer"),
        ({"ensemble": "mixed"}, "use 'gaussian'"),
    ):
        with pytest.raises(InvalidParameterError, match=match):
            dca.find_anchors(X, **{"n_anchors": 3, **options, **change})
    with pytest.raises(InvalidInputError, match="same space"):
        dca.find_anchors(X, 3, **{**options, "Y": Y[:, :5]})
    with pytest.raises(InvalidInputError, match="can't cover X"):
        dca.find_anchors(X, 3, **{**options, "Y": np.zeros((5, 8))})
    with pytest.raises(NotFiniteError):
        dca.find_anchors(X, 3, **{**options, "Y": np.where(Y > 1, np.nan, Y)})
    monkeypatch.setattr(hyperplanes, "_MAX_PROJECTIONS", 100)
    with pytest.raises(InvalidParameterError, match="use solver='plane'"):
        dca.find_anchors(X, 3, **options)
