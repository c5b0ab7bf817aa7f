"""Units in which the sums over states are exact: about the states' own size, of which their mean is a part."""

from dataclasses import replace

import numpy as np
import pytest

from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.models.kalman.passes import e_step_pass, state_scale
from dask_dca.models.kalman.pieces import prepare
from tests.models.kalman.data import draw, make_system

TRUTH = make_system(3, 6, 1)


def tracker_of(system, edges):
    return prepare(system, edges, np.zeros(6), np.ones(6), tolerance=1e-12, n_frames=256, width=60)


@pytest.mark.parametrize("mean", [[1.0, -2.0, 0.5], [300.0, -5e5, 0.0]])
def test_units_are_the_power_of_two_above_spread_and_mean(mean):
    system = replace(TRUTH, initial_mean=np.array(mean))
    plan = tracker_of(system, np.array([0, 20]))
    steady = plan.gains[1].predicted[0]
    size = np.sqrt(np.diagonal(system.initial_covariance) + np.diagonal(steady) + np.array(mean) ** 2)
    found = state_scale(plan)
    assert (found >= size).all()
    assert (found < 2.0 * size).all()
    np.testing.assert_array_equal(found, np.exp2(np.rint(np.log2(found))))


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("power", [-40, 30])
def test_sums_follow_the_states_unit(missing, power):
    """The same system with states in a unit of 2**power: all sums are as many times as large."""
    system = replace(TRUTH, initial_mean=np.array([40.0, -20.0, 5.0]))
    unit = 2.0**power
    other = replace(
        system,
        observation=system.observation / unit,
        transition_covariance=system.transition_covariance * unit**2,
        initial_mean=system.initial_mean * unit,
        initial_covariance=system.initial_covariance * unit**2,
    )
    X, edges = draw(system, 30, 2), np.array([0, 12, 30])
    if missing:
        X[::4, 2] = np.nan
    one, two = (
        e_step_pass(as_rows(X), tracker_of(s, edges), Run(), missing=missing, full=not missing, second=None)
        for s in (system, other)
    )
    for name, times in (
        ("pairs", unit**2),
        ("starts", unit**2),
        ("before", unit**2),
        ("after", unit**2),
        ("start_means", unit),
    ):
        wanted = getattr(one.sums, name)
        np.testing.assert_allclose(getattr(two.sums, name) / times, wanted, atol=1e-3 * np.abs(wanted).max())
    assert two.log_likelihood == pytest.approx(one.log_likelihood, abs=1e-3)


@pytest.mark.parametrize("missing", [False, True])
def test_sums_over_pieces_are_those_of_whole_sequences(missing):
    system, edges = replace(TRUTH, initial_mean=np.array([40.0, -20.0, 5.0])), np.array([0, 700, 760, 1500])
    X = np.concatenate([draw(system, n, n) for n in np.diff(edges)])
    if missing:
        X[::7, 2] = np.nan
    pieces, whole = (
        prepare(system, edges, np.zeros(6), np.ones(6), tolerance=1e-12, n_frames=n, width=60) for n in (32, 4096)
    )
    assert pieces.cut.burn_in > 0
    assert whole.cut.burn_in == 0
    found, wanted = (
        e_step_pass(as_rows(X), plan, Run(), missing=missing, full=not missing, second=None).sums
        for plan in (pieces, whole)
    )
    for name in ("every", "pairs", "before", "after", "starts", "start_means", "cross"):
        size = np.abs(getattr(wanted, name)).max()
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), atol=1e-4 * size, err_msg=name)
