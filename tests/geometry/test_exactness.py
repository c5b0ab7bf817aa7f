"""What the engine's bits rest on: exact sums, exact places, and a filter that never drops a winner."""

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dask_dca.engine.types import add_parts
from dask_dca.geometry import planes, votes
from dask_dca.geometry.moments import (
    UNEVEN,
    Evenness,
    _project,
    coordinates,
    heights,
    huber_weights,
    length_exponent,
    moments,
    power_sums,
    ratios,
    residual_energy,
    robust_center,
    subspace,
    subspace_frame,
    subspace_of_rows,
)
from dask_dca.geometry.screening import approximate_positions, prepare_screen, surviving_rows

SEEDS = st.integers(0, 2**32 - 1)


def rows_of(kind, rng, n, p):
    """Rows of the kinds that strain rounding."""
    X = rng.dirichlet(np.ones(4), n) @ rng.random((4, p))
    if kind == "outliers":
        X[rng.random(n) < 0.05] += 10.0 ** rng.integers(0, 12) * rng.random(p)
    if kind == "one huge entry":
        X[rng.integers(n, size=3), rng.integers(p, size=3)] = 10.0 ** rng.integers(3, 15, 3)
    if kind == "tiny spread":
        X = 1.0 + 10.0 ** rng.integers(-13, -2) * X
    if kind == "uneven features":
        X *= 10.0 ** rng.uniform(-6, 6, p)
    if kind == "uneven rows":
        X *= 10.0 ** rng.uniform(-12, 12, (n, 1))
    if kind == "huge":
        X *= 10.0 ** rng.integers(100, 290)
    if kind == "tiny":
        X *= 10.0 ** -rng.integers(100, 290)
    if kind == "signed":
        X += rng.standard_normal(X.shape) * X.mean() * 0.5
    if kind == "nearly flat":  # heights that almost cancel
        X -= X.mean(axis=1, keepdims=True) * (1.0 - 10.0 ** -rng.uniform(1, 14, (n, 1)))
    return X


KINDS = [
    "plain",
    "outliers",
    "one huge entry",
    "tiny spread",
    "uneven features",
    "uneven rows",
    "huge",
    "tiny",
    "signed",
    "nearly flat",
]
AXES = ["ones", "mean", "random"]


def axis_of(kind, rng, X):
    if kind == "ones":
        return None
    unit = X / np.maximum(np.abs(X).max(axis=1, keepdims=True), 1e-300)
    axis = unit.mean(axis=0) if kind == "mean" else rng.random(X.shape[1]) + 0.1
    return axis / max(np.linalg.norm(axis), 1e-300)


def evenness_of(rows, axis, share):
    level = float(np.median(heights(rows, axis)))
    return Evenness(level, share * level) if share * level > 0.0 and level < 1e300 else UNEVEN


@st.composite
def framed(draw):
    """Rows, their usable ones scaled, and a frame that was found from a part of them."""
    rng = np.random.default_rng(draw(SEEDS))
    n, p, k = draw(st.integers(8, 90)), draw(st.integers(2, 40)), draw(st.integers(2, 6))
    X = rows_of(draw(st.sampled_from(KINDS)), rng, n, p)
    axis = axis_of(draw(st.sampled_from(AXES)), rng, X)
    scaled, usable = ratios(X, axis)
    assume(usable[: n // 2].sum() > 3)
    even = evenness_of(X[: n // 2][usable[: n // 2]], axis, draw(st.sampled_from([0.0, 0.0, 0.1, 0.5, 3.0])))
    scaled, _ = ratios(X, axis, even)
    part = scaled[: n // 2][usable[: n // 2]]
    mean, energy = robust_center(part)
    found = subspace_of_rows(part, mean, energy, k)
    return X, scaled, usable, subspace_frame(found, axis, energy, even)


@given(framed(), st.sampled_from([np.float32, np.float64]), st.sampled_from([None, np.float32, np.float64]))
@settings(max_examples=250)
def test_an_approximate_position_is_within_its_margin_of_the_exact_one(case, dtype, precision):
    X, scaled, usable, where = case
    if dtype == np.float32:
        with np.errstate(over="ignore"):
            X = X.astype(np.float32)
        X[~np.isfinite(X)] = 1.0
        scaled, usable = ratios(X, where.axis, where.even)
    near, margins, _ = approximate_positions(X, prepare_screen(where, precision))
    exact = coordinates(scaled[usable].copy(), where)
    seen = np.isfinite(margins[usable])
    error = np.linalg.norm(near[usable][seen] - exact[seen], axis=1)
    assert (error <= margins[usable][seen]).all(), (error / margins[usable][seen]).max()
    # a row without a position must survive, because the exact stage counts it
    assert np.isinf(margins[~usable]).all()


def test_ordinary_rows_have_small_margins():
    """A bound that is always infinite would be correct but useless."""
    rng = np.random.default_rng(0)
    X = rows_of("plain", rng, 500, 30)
    scaled, _ = ratios(X)
    mean, energy = robust_center(scaled)
    where = prepare_screen(subspace_frame(subspace_of_rows(scaled, mean, energy, 4), None, energy))
    assert where.table.dtype == np.float32
    for some in (X, 1e200 * X, 1e-200 * X, X.astype(np.float32), np.float32(1e30) * X.astype(np.float32)):
        near, margins, _ = approximate_positions(some, where)
        assert np.median(margins) < 1e-2 * np.linalg.norm(near, axis=1).max()
        assert np.isfinite(margins).all()


def test_data_far_from_the_origin_are_screened_in_double_precision():
    """Bounds in single precision would be correct, but too large to be useful."""
    rng = np.random.default_rng(0)
    X = 100.0 + rows_of("plain", rng, 500, 30)
    scaled, _ = ratios(X)
    mean, energy = robust_center(scaled)
    where = prepare_screen(subspace_frame(subspace_of_rows(scaled, mean, energy, 4), None, energy))
    assert where.table.dtype == np.float64
    near, margins, _ = approximate_positions(X, where)
    assert np.median(margins) < 1e-3 * np.linalg.norm(near, axis=1).max()


@given(framed(), SEEDS, st.integers(0, 60), st.integers(1, 40), st.sampled_from([None, np.float32, np.float64]))
@settings(max_examples=150)
def test_surviving_rows_contain_every_row_that_wins_or_ties(case, seed, n_before, count, precision):
    X, scaled, usable, where = case
    rng = np.random.default_rng(seed)
    X = X[usable]
    X = np.concatenate([X, X[rng.integers(len(X), size=len(X) // 2)]])  # ties
    X = X[rng.permutation(len(X))]
    scaled, usable = ratios(X, where.axis, where.even)
    X, scaled = X[usable], scaled[usable]
    numbers = np.cumsum(rng.integers(1, 4, len(X)))
    directions = votes.integer_directions(
        planes.directions("gaussian", seed, np.arange(count), np.ones(where.basis.shape[1]))
    )
    exact = coordinates(scaled.copy(), where)
    cut = min(n_before, len(X))
    best = votes.extremes(exact[:cut], numbers[:cut], directions)
    near, margins, _ = approximate_positions(X[cut:], prepare_screen(where, precision))
    chosen = surviving_rows(best, near, margins, directions.astype(np.float32))
    filtered = votes.extremes(exact[cut:][chosen], numbers[cut:][chosen], directions, best)
    every = votes.extremes(exact, numbers, directions)
    for name in ("keys", "rows", "values"):
        np.testing.assert_array_equal(getattr(filtered, name), getattr(every, name))


def test_survivors_are_found_where_most_rows_have_no_position():
    X = np.vstack([np.zeros((300, 8)), rows_of("plain", np.random.default_rng(0), 100, 8), np.zeros((300, 8))])
    scaled, usable = ratios(X)
    mean, energy = robust_center(scaled[usable])
    where = subspace_frame(subspace_of_rows(scaled[usable], mean, energy, 4), None, energy)
    directions = votes.integer_directions(planes.directions("gaussian", 0, np.arange(16), np.ones(3)))
    found = surviving_rows(
        votes.ArgBest.empty(32, 3), *approximate_positions(X, prepare_screen(where))[:2], directions.astype(np.float32)
    )
    every = votes.extremes(coordinates(scaled[usable].copy(), where), np.flatnonzero(usable), directions)
    assert np.isin(every.rows, found).all()
    assert np.isin(np.flatnonzero(~usable), found).all()


def test_few_rows_of_a_long_block_survive():
    rng = np.random.default_rng(0)
    X = rows_of("plain", rng, 4000, 30)
    scaled, _ = ratios(X)
    mean, energy = robust_center(scaled)
    where = subspace_frame(subspace_of_rows(scaled[:100], mean, energy, 4), None, energy)
    directions = votes.integer_directions(planes.directions("gaussian", 0, np.arange(64), np.ones(3)))
    best = votes.extremes(coordinates(scaled[:2000].copy(), where), np.arange(2000), directions)
    near, margins, _ = approximate_positions(X[2000:], prepare_screen(where))
    assert len(surviving_rows(best, near, margins, directions.astype(np.float32))) < 200


@given(framed(), SEEDS, st.integers(1, 30))
@settings(max_examples=100)
def test_coordinates_do_not_depend_on_the_tile(case, seed, step):
    _, scaled, usable, where = case
    scaled = scaled[usable]
    whole = coordinates(scaled.copy(), where)
    parts = [coordinates(scaled[i : i + step].copy(), where) for i in range(0, len(scaled), step)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    order = np.random.default_rng(seed).permutation(len(scaled))
    np.testing.assert_array_equal(coordinates(scaled[order], where), whole[order])
    assert np.array_equal(whole, np.rint(whole))
    assert (np.linalg.norm(whole, axis=1) < 2.0**32).all()


@given(framed())
@settings(max_examples=100)
def test_projections_are_sums_of_integers_that_no_order_of_adding_can_round(case):
    _, scaled, usable, where = case
    inside, energy = _project(scaled[usable].copy(), where)
    whole = inside * 2.0**26
    assert np.array_equal(whole, np.rint(whole))
    exponents = np.frexp(np.abs(inside).max(axis=1))[1]
    near = exponents < 26  # its energy is below 2**53 as well
    again = np.rint(scaled[usable] * where.gain - where.offset)
    exact = [
        [sum(int(x) * int(b) for x, b in zip(row, column, strict=True)) for column in where.basis.T] for row in again
    ]
    energies = (again**2).sum(axis=1)
    for i in np.flatnonzero(near & (energies < 2.0**52)):
        assert whole[i].tolist() == [float(value) for value in exact[i]]
        assert energy[i] == energies[i]


@given(framed(), SEEDS, st.integers(1, 12))
@settings(max_examples=100)
def test_extremes_merge_in_any_order_and_any_parts(case, seed, n_parts):
    _, scaled, usable, where = case
    rng = np.random.default_rng(seed)
    exact = coordinates(scaled[usable].copy(), where)
    exact[rng.integers(len(exact), size=len(exact) // 2)] = exact[rng.integers(len(exact), size=len(exact) // 2)]
    directions = votes.integer_directions(planes.directions("gaussian", seed, np.arange(9), np.ones(exact.shape[1])))
    numbers = np.arange(len(exact))
    owner = rng.integers(n_parts, size=len(exact))
    parts = [votes.extremes(exact[owner == i], numbers[owner == i], directions) for i in rng.permutation(n_parts)]
    merged, whole = add_parts(parts), votes.extremes(exact, numbers, directions)
    heights = np.concatenate([directions, -directions]) @ exact.T
    np.testing.assert_array_equal(merged.keys, heights.max(axis=1))
    np.testing.assert_array_equal(merged.rows, heights.argmax(axis=1))  # the first of equals
    np.testing.assert_array_equal(merged.values, exact[heights.argmax(axis=1)])
    np.testing.assert_array_equal(whole.rows, merged.rows)


def partition(rng, n, n_parts):
    owner = rng.integers(n_parts, size=n)
    return [np.flatnonzero(owner == i) for i in range(n_parts)]


@given(seed=SEEDS, kind=st.sampled_from(KINDS), n_parts=st.integers(1, 12))
@example(seed=0, kind="one huge entry", n_parts=12)
@settings(max_examples=100)
def test_moments_are_exact_under_any_partition(seed, kind, n_parts):
    rng = np.random.default_rng(seed)
    scaled, usable = ratios(rows_of(kind, rng, 120, 9))
    scaled = scaled[usable]
    assume(len(scaled) > 3)
    mean, energy = robust_center(scaled[:40])
    whole = moments(scaled, mean, energy, len(scaled))
    parts = [moments(scaled[rows], mean, energy, len(scaled)) for rows in partition(rng, len(scaled), n_parts)]
    total = np.zeros_like(whole.gram)
    for part in parts:
        total += part.gram
    np.testing.assert_array_equal(total, whole.gram)
    assert sum(part.n_rows for part in parts) == whole.n_rows


@given(seed=SEEDS, kind=st.sampled_from(KINDS), n_parts=st.integers(1, 12))
@settings(max_examples=100)
def test_power_sums_are_exact_under_any_partition(seed, kind, n_parts):
    rng = np.random.default_rng(seed)
    scaled, usable = ratios(rows_of(kind, rng, 120, 9))
    scaled = scaled[usable]
    assume(len(scaled) > 3)
    mean, energy = robust_center(scaled[:40])
    gain, basis = rng.random(9), np.linalg.qr(rng.standard_normal((9, 4)))[0]
    whole = power_sums(scaled, mean, energy, gain, basis, len(scaled))
    parts = [
        power_sums(scaled[rows], mean, energy, gain, basis, len(scaled))
        for rows in partition(rng, len(scaled), n_parts)
    ]
    total, trace = np.zeros_like(whole.product), 0.0
    for part in parts:
        total += part.product
        trace += part.trace
    np.testing.assert_array_equal(total, whole.product)
    assert trace == whole.trace


@pytest.mark.parametrize("kind", ["plain", "outliers", "tiny spread"])
def test_moments_are_those_of_the_weighted_rows(kind):
    rng = np.random.default_rng(3)
    scaled, _ = ratios(rows_of(kind, rng, 400, 12))
    mean, energy = robust_center(scaled)
    centred = scaled - mean
    weighted = centred * huber_weights(centred, energy)[:, None]
    gram = moments(scaled, mean, energy, 400).gram
    np.testing.assert_allclose(gram[:-1, :-1], weighted.T @ weighted, atol=1e-4 * energy)
    basis = np.linalg.qr(rng.standard_normal((12, 3)))[0]
    sums = power_sums(scaled, mean, energy, np.ones(12), basis, 400)
    np.testing.assert_allclose(sums.product, weighted.T @ weighted @ basis, atol=1e-4 * energy)
    np.testing.assert_allclose(sums.trace, (weighted**2).sum(), rtol=1e-4)


def test_exact_sums_hold_for_the_most_rows_allowed():
    """2**26 rows of full weight: no partial sum may lose its last bit."""
    bits = (52 - 26) // 2
    rows = np.full((1, 2), 1.0)
    one = moments(rows, np.zeros(2), 2.0, 2**26).gram
    unit = 2.0 ** (2 * (bits - length_exponent(2.0)))
    assert (one[:2, :2] * unit * 2.0**26 < 2.0**53).all()
    assert np.array_equal(one * unit, np.rint(one * unit))


@given(seed=SEEDS, kind=st.sampled_from(KINDS))
@settings(max_examples=100)
def test_rows_are_scaled_to_height_one_whatever_their_size(seed, kind):
    rng = np.random.default_rng(seed)
    X = np.vstack([rows_of(kind, rng, 30, 8), np.zeros((1, 8)), np.full((1, 8), -1.0)])
    scaled, usable = ratios(X)
    assert not usable[-2:].any()
    assert not scaled[-2:].any()
    # of numbers that almost cancel, only the sum of magnitudes bounds the rounding
    mass = np.abs(scaled[usable]).sum(axis=1)
    assert (np.abs(scaled[usable].sum(axis=1) - 1.0) <= 1e-14 * mass).all()
    some = rng.permutation(len(X))[:7]
    np.testing.assert_array_equal(ratios(X[some])[0], scaled[some])


def test_residual_energy_is_what_lies_outside_the_subspace():
    rng = np.random.default_rng(0)
    scaled, _ = ratios(rows_of("plain", rng, 200, 20))
    mean, energy = robust_center(scaled)
    found = subspace(moments(scaled, mean, energy, 200), mean, energy, 4)
    where = subspace_frame(found, None, energy)
    foreign = scaled + 0.1 * rng.random(scaled.shape)
    outside = residual_energy(foreign, where)
    assert residual_energy(scaled, where).max() < 1e-6 * outside.min()
