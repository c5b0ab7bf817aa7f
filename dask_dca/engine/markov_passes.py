"""One pass of Baum-Welch: expected counts and moments of hidden states, summed over pieces of sequences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dask_dca.engine.emissions import Emission, piece_messages
from dask_dca.engine.merges import add_parts
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.sequences import batches
from dask_dca.geometry.arg_best import ArgBest
from dask_dca.geometry.exact import Total, plain_total, power_of_two
from dask_dca.kernels.markov import Messages, Scratch, transition_counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dask_dca.engine.halo import Window
    from dask_dca.engine.origins import Origins
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.sequences import Batch, Cut
    from dask_dca.kernels.chains import Markov

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Statistics", "expectation_pass"]

_FINE: Final = 2.0**-24  # of its own scale: what a sum over a piece is rounded to
_FINE_LIKELIHOOD: Final = 2.0**-30
_SECOND_ENTRIES: Final = 2**20  # products of features that are held at once


@dataclass(frozen=True)
class Statistics:
    """
    Expected counts, and moments of the frames about a centre.

    Attributes
    ----------
    log_likelihood : float
        Of all sequences.
    starts : ndarray of float64, shape (k,)
        Expected number of sequences that start in each state.
    transitions : ndarray of float64, shape (k, k)
        Expected number of transitions.
    counts : ndarray of float64, shape (k,)
        Expected number of frames.
    first : ndarray of float64, shape (k, p)
        Weighted sums of frames.
    second : ndarray of float64
        Weighted sums of their products: "full" (k, p, p), "tied" (p, p), "diag" (k, p), "spherical" (k,), "none" (0,).
    nearest : ndarray of int64, shape (k,)
        The frame of greatest density in each state.
    origins : ndarray of float64, shape (k, p), or 0.0
        Points less the centre, that the moments of each state are about.
    """

    log_likelihood: float
    starts: Floats
    transitions: Floats
    counts: Floats
    first: Floats
    second: Floats
    nearest: Numbers
    origins: Floats | float = 0.0


@dataclass(frozen=True)
class _Sums:
    """Sums over pieces, and the frame of greatest density in each state."""

    plain: Total
    products: Total
    nearest: ArgBest  # (k,), by density

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(self.plain + other.plain, self.products + other.products, self.nearest + other.nearest)


@dataclass(frozen=True)
class _State:
    cut: Cut
    emission: Emission
    markov: Markov
    origins: Origins
    second: str

    def frame_values(self, tile: Floats) -> Floats:
        """Log densities and centred features, side by side."""
        return np.hstack([self.emission(tile), tile - self.origins.centre])


def expectation_pass(
    rows: Rows,
    cut: Cut,
    emission: Emission,
    markov: Markov,
    origins: Origins,
    second: str,
    run: Run,
    name: str = "refine",
) -> Statistics:
    """
    Run the forward and backward recursions over all frames, and sum what the M-step needs.

    Parameters
    ----------
    rows : Rows
        The data.
    cut : Cut
        How sequences are cut into pieces.
    emission : Emission
        Densities of frames.
    markov : Markov
        Start and transition probabilities.
    origins : Origins
        What moments are taken about.
    second : {"full", "tied", "diag", "spherical", "none"}
        Which second moments.
    run : Run
        How passes are run.
    name : str, default "refine"
        Tasks are called dca-<name>.

    Returns
    -------
    Statistics
        The same bits for any chunking.
    """
    state = _State(cut, emission, markov, origins, second)
    job: Pass[_Sums] = Pass(name, _expectation_block, add_parts, cut.halo)
    sums = run_pass(rows, job, state, run)
    k, p = len(markov.startprob), len(origins.centre)
    values = sums.plain.value()
    ends = np.cumsum([1, k, k * k, k, k * p])
    likelihood, starts, transitions, counts, first = np.split(values, ends[:-1])
    return Statistics(
        float(likelihood[0]),
        starts,
        transitions.reshape(k, k),
        counts,
        first.reshape(k, p),
        sums.products.value(),
        sums.nearest.rows,
        0.0 if origins.points is None else origins.points,
    )


def _expectation_block(state: _State, window: Window, *columns: Any) -> _Sums:
    k, p = len(state.markov.startprob), len(state.origins.centre)
    units, second_units = _units(state)
    plain = plain_total(np.zeros((0, len(units))), units)
    products = plain_total(np.zeros((0, *second_units.shape)), second_units)
    found = [_Sums(plain, products, ArgBest.nobody(k))]
    scratch = Scratch()
    for batch in batches(state.cut, window, columns, state.frame_values):
        messages = piece_messages(state.cut, state.markov, batch, k, scratch)
        weights, frames = _own(state.cut, batch, messages, p)
        plain = plain_total(_piece_sums(state, batch, messages, weights, frames), units)
        second = (plain_total(some, second_units) for some in _second_moments(state, weights, frames))
        densities = batch.values[:-1, :k]
        nearest = ArgBest.of_rows(densities, batch.low + np.arange(len(densities)))
        found.append(_Sums(plain, reduce(add, second, products), nearest))
    return add_parts(found)


def _units(state: _State) -> tuple[Floats, Floats]:
    k = len(state.markov.startprob)
    scales = state.origins.scales(k)
    counts = np.full(k + k * k + k, _FINE)
    units = np.concatenate([[_FINE_LIKELIHOOD], counts, (scales * _FINE).ravel()])
    return units, _second_units(state.second, scales) * _FINE


def _second_units(second: str, scales: Floats) -> Floats:
    """What second moments are rounded to, in the shape of their form alone."""
    if second == "full":
        return scales[:, :, None] * scales[:, None, :]
    if second == "tied":
        return np.multiply.outer(scales.min(axis=0), scales.min(axis=0))
    if second == "diag":
        return scales**2
    return power_of_two((scales**2).sum(axis=1)) if second == "spherical" else np.ones(0)


def _own(cut: Cut, batch: Batch, found: Messages, p: int) -> tuple[Floats, Floats]:
    """Posteriors (m, k, length) and centred frames (m, length, p) of the pieces, zero where not their own."""
    own, m = slice(cut.burn_in, cut.burn_in + cut.length), len(batch.begins)
    weights = found.posteriors[own, :, :m] * batch.own[own, None, :m]
    frames = batch.values[:, -p:][batch.index[own, :m]]
    return np.ascontiguousarray(weights.transpose(2, 1, 0)), np.ascontiguousarray(frames.transpose(1, 0, 2))


def _piece_sums(state: _State, batch: Batch, found: Messages, weights: Floats, frames: Floats) -> Floats:
    """For each piece: log likelihood, start, transitions, counts and first moments, side by side."""
    m, at = len(batch.begins), state.cut.burn_in
    likelihood = (found.log_likelihoods[:, :m] * batch.own[:, :m])[at : at + state.cut.length].sum(axis=0)
    starts = np.where(batch.first[:m, None], found.posteriors[at, :, :m].T, 0.0)
    pairs = batch.own.copy()
    pairs[:-1] &= batch.inside[1:]
    pairs[-1] = False
    transitions = transition_counts(state.markov, found, pairs[:, :m])
    first = np.matmul(weights, frames)
    for j, own, away in _about_points(state, weights, frames):
        first[:, [j]] = np.matmul(own, away)
    return np.hstack(
        [likelihood[:, None], starts, transitions.reshape(m, -1), weights.sum(axis=2), first.reshape(m, -1)]
    )


def _about_points(state: _State, weights: Floats, frames: Floats) -> Iterator[tuple[int, Floats, Floats]]:
    """For each state with a point of its own: its number, its posteriors (m, 1, length), and frames less the point."""
    for j in state.origins.far():
        assert state.origins.points is not None
        yield j, np.ascontiguousarray(weights[:, [j]]), frames - state.origins.points[j]


def _second_moments(state: _State, weights: Floats, frames: Floats) -> Iterator[Floats]:
    """Second moments of the pieces, a few pieces at a time."""
    if state.second == "none":
        return
    near = weights.copy()
    near[:, state.origins.far()] = 0.0
    yield from _products(state.second, near, frames)
    for j, own, away in _about_points(state, weights, frames):
        for part in _products(state.second, own, away):
            if state.second == "tied":
                yield part
            else:
                whole = np.zeros((len(part), weights.shape[1], *part.shape[2:]))
                whole[:, [j]] = part
                yield whole


def _products(second: str, weights: Floats, frames: Floats) -> Iterator[Floats]:
    if second == "diag":
        yield np.matmul(weights, frames**2)
    elif second == "spherical":
        yield np.matmul(weights, (frames**2).sum(axis=2)[:, :, None])[:, :, 0]
    elif second == "tied":
        p = frames.shape[2]
        together = weights.sum(axis=1)[:, :, None]
        step = max(1, _SECOND_ENTRIES // (p * p))
        for i in range(0, len(frames), step):
            some = frames[i : i + step]
            yield np.matmul((some * together[i : i + step]).transpose(0, 2, 1), some)
    elif second == "full":
        k, p = weights.shape[1], frames.shape[2]
        step = max(1, _SECOND_ENTRIES // (k * p * p))
        for i in range(0, len(frames), step):
            some = frames[i : i + step, None]
            yield np.matmul(some.transpose(0, 1, 3, 2) * weights[i : i + step, :, None], some)
