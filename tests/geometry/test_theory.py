"""The paper's proposition, theorem and corollary against simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_dca as dca
from dask_dca.geometry.theory import (
    anchor_angle,
    false_angle,
    measured_success,
    separation,
    simulate_votes,
    success_bound,
    vote_probability,
)

PLANES = 40_000
NOISE = 4.5 * 0.5 / np.sqrt(PLANES)  # 4.5 standard deviations of a share, at most


def polygon(k, seed):
    """A convex polygon: points on an ellipse, at random angles."""
    rng = np.random.default_rng(seed)
    turn = np.sort(rng.uniform(0, 2 * np.pi, k))
    return np.column_stack([np.cos(turn), rng.uniform(0.3, 1.0) * np.sin(turn)])


def shares(choices, size):
    return np.bincount(choices[choices >= 0], minlength=size) / len(choices)


@given(seed=st.integers(0, 10**6), k=st.integers(3, 9))
@settings(max_examples=12)
def test_the_probability_of_a_vote_is_the_angle_of_the_anchor(seed, k):
    """Both readings of the Proposition: one side of a plane, and both."""
    corners = polygon(k, seed)
    alphas = [anchor_angle(corners[i - 1], corners[i], corners[(i + 1) % k]) for i in range(k)]
    assert sum(alphas) == pytest.approx(2 * np.pi)
    choices = simulate_votes(corners, PLANES, seed=seed)
    np.testing.assert_allclose(shares(choices, k), [vote_probability(a) for a in alphas], atol=NOISE)
    np.testing.assert_allclose(shares(choices[:, :1], k), [vote_probability(a, sides=1) for a in alphas], atol=NOISE)


def test_the_printed_formula_is_the_other_angle():
    """A flat anchor has hardly a vote, while its interior angle is nearly pi."""
    corners = np.array([[0.0, 0.0], [1.0, 0.01], [2.0, 0.0], [1.0, -2.0]])
    share = shares(simulate_votes(corners, PLANES), 4)[1]
    interior = np.pi - anchor_angle(*corners[:3])
    assert share == pytest.approx(vote_probability(anchor_angle(*corners[:3])), abs=0.01)
    assert share < 0.02 < 0.9 < vote_probability(interior)


@pytest.mark.parametrize("other", [(0.4, 1.2), (-0.6, 1.2), (0.8, 1.25)])
def test_a_row_that_is_no_anchor_takes_the_votes_of_its_angle(other):
    """X reaches to C; Y has the anchor A, and B, which is chosen instead of A with share beta."""
    anchor, covered = np.array([0.0, 1.4]), np.array([0.0, 1.0])
    base = np.array([[-3.0, -1.0], [3.0, -1.0]])
    X = np.vstack([covered, base])
    beta = false_angle(other, anchor, covered)
    turns = np.linspace(0, 2 * np.pi, 7201)[:-1]
    b = np.column_stack([np.cos(turns), np.sin(turns)])
    taken = ((np.array(other) - covered) @ b.T > 0) & ((anchor - np.array(other)) @ b.T > 0)
    assert taken.mean() == pytest.approx(beta / (2 * np.pi), abs=1e-3)
    assert (X @ b[taken].T).argmax(axis=0).tolist() == [0] * taken.sum()  # no other row comes in
    choices = simulate_votes(X, PLANES, Y=np.vstack([base, anchor, other]))
    without = simulate_votes(X, PLANES, Y=np.vstack([base, anchor]))
    assert shares(choices, 4)[3] == pytest.approx(vote_probability(beta), abs=NOISE)
    lost = shares(without, 3)[2] - shares(choices, 4)[2]
    assert lost == pytest.approx(vote_probability(beta), abs=2 * NOISE)


@pytest.mark.parametrize(("k", "d"), [(3, 2), (5, 4), (8, 3), (10, 9), (20, 6)])
def test_the_bound_holds(k, d):
    """The Theorem, in slices of any dimension: measured success is never below the bound."""
    rng = np.random.default_rng(k)
    corners = rng.standard_normal((k, d))
    corners /= np.linalg.norm(corners, axis=1)[:, None]
    inside = rng.dirichlet(np.ones(k), 50) @ corners
    choices = simulate_votes(np.vstack([corners, inside]), PLANES, seed=k)
    probabilities = shares(choices, k + 50)
    assert not probabilities[k:].any()
    c = separation(probabilities[:k])
    counts = [max(1, round(k * f / c)) for f in (0.5, 1, 2, 4, 8, 12, 20)]
    measured = measured_success(choices, np.arange(k), counts, trials=300)
    bound = np.array([success_bound(s, k, c) for s in counts])
    assert (measured >= bound - 0.03).all()
    assert bound[0] == 0.0
    assert bound[-1] > 0.9
    assert (np.diff(measured) > -0.1).all()
    assert measured[0] < 0.9


def test_the_bound_holds_with_false_rows():
    """Another row close beyond X steals votes; the anchors still lead, and the bound knows by how much."""
    corners = np.array([[-3.0, -1.0], [3.0, -1.0], [0.0, 2.0]])
    X = np.array([[0.0, 1.9], [-2.0, -0.9], [2.0, -0.9]])
    Y = np.vstack([corners, [[0.9, 1.0]]])
    choices = simulate_votes(X, PLANES, Y=Y)
    found = shares(choices, 4)
    assert 0.01 < found[3] < found[:3].min()
    c = separation(found[:3], found[3:])
    counts = [5, 10, 20, 40, 80, 160]
    measured = measured_success(choices, [0, 1, 2], counts, trials=400)
    assert (measured >= [success_bound(s, 3, c) - 0.03 for s in counts]).all()


def test_the_corollary_inverts_the_theorem():
    for k in (1, 2, 10, 100):
        for delta in (0.5, 0.01, 1e-6):
            for c in (0.3, 1.0, 2.0):
                s = dca.n_subproblems(k, delta=delta, c=c)
                assert success_bound(s, k, c) >= 1 - delta
                assert success_bound(s - 1, k, c) < 1 - delta


def test_the_vote_of_the_library_has_the_probability_of_the_theory():
    """find_anchors' own votes on a planted polygon, and the angles."""
    corners = polygon(5, 3)
    rng = np.random.default_rng(0)
    slice_ = np.vstack([corners, rng.dirichlet(np.ones(5), 200) @ corners])
    X = np.column_stack([slice_ + 2.0, 6.0 - (slice_ + 2.0).sum(axis=1)])  # rows of sum 6, a plane of the orthant
    planar = X[:5] @ np.linalg.qr(np.column_stack([np.ones(3), np.eye(3)[:, :2]]))[0][:, 1:]
    alphas = [anchor_angle(planar[i - 1], planar[i], planar[(i + 1) % 5]) for i in range(5)]
    found = dca.find_anchors(X, 5, n_subproblems=4000, ensemble="gaussian")
    share = found.vote_share[np.argsort(found.indices)]
    assert sorted(found.indices) == list(range(5))
    np.testing.assert_allclose(share, [vote_probability(a) for a in alphas], atol=0.08)


def test_points_that_coincide_have_no_angle():
    with pytest.raises(ValueError, match="the same"):
        anchor_angle([0.0, 0.0], [0.0, 0.0], [1.0, 0.0])


def test_separation_of_votes():
    assert separation([0.4, 0.6]) == pytest.approx(0.8)
    assert separation([0.1, 0.6], [0.3]) < 0
    assert success_bound(100, 2, -0.4) == 0.0


def test_the_picture_shows_measure_and_bound():
    from dask_dca.plotting.certificate import plot_success

    ax = plot_success(polygon(5, 1), np.arange(5), n_planes=2000, trials=40)
    measured, bound = (line.get_ydata() for line in ax.lines)
    assert (measured >= np.array(bound) - 0.12).all()
    assert "s" in ax.get_xlabel()
