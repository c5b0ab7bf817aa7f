"""What runs on pieces of sequences for a hidden Markov model: densities, recursions, expected counts, moments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.sequences import batches
from dask_dca.engine.types import add_parts
from dask_dca.geometry.arg_best import ArgBest
from dask_dca.geometry.exact import Total, plain_total, power_of_two
from dask_dca.models.gaussians import Gaussians, log_densities
from dask_dca.models.hmm.recursions import (
    Chains,
    Markov,
    Messages,
    Scratch,
    forward_backward,
    safe_log,
    stationary_distribution,
    transition_counts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dask_dca.engine.halo import Window
    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.engine.sequences import Batch, Cut

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]

__all__ = ["Emission", "Emissions", "Origins", "Statistics", "e_step_pass", "piece_messages", "steps_first"]

_LEAST_DEVIATION: Final = 2.0**-40  # of a feature's own: moments about a point are not rounded finer
_FINE: Final = 2.0**-24  # of its own scale: what a sum over a piece is rounded to
_FINE_LIKELIHOOD: Final = 2.0**-30
_SECOND_ENTRIES: Final = 2**20  # products of features that are held at once


@dataclass(frozen=True)
class Origins:
    """Points that moments are taken about, and what they are rounded by.

    centre, spreads (p,): A point amid the frames, and their rough standard deviations; points (k, p): for each state a
    point less the centre: zero where the centre will do, and always if None; deviations (k, p): rough standard
    deviations in the states whose point is not zero.
    """

    centre: Floats
    spreads: Floats
    points: Floats | None = None
    deviations: Floats | None = None

    def far(self) -> list[int]:
        """Say which states have a point of their own."""
        return [] if self.points is None else np.flatnonzero(self.points.any(axis=1)).tolist()

    def scales(self, k: int) -> Floats:
        """Return powers of two by which moments are rounded.

        Returns (k, p): of the size of the standard deviations.
        """
        scales = np.repeat(power_of_two(self.spreads)[None], k, axis=0)
        if self.deviations is not None:
            far = self.far()
            scales[far] = power_of_two(np.maximum(self.deviations[far], _LEAST_DEVIATION * self.spreads))
        return scales


class Emissions(Protocol):
    """What states emit: log densities of frames, and the features of frames whose moments make the next M-step."""

    def __call__(self, tile: Floats) -> Floats:
        """Evaluate the log densities: of a tile (n, p), shape (n, k)."""
        ...

    def features(self, tile: Floats) -> Floats:
        """Return the features of a tile (n, p), shape (n, q)."""
        ...


@dataclass(frozen=True)
class Emission:
    """Densities of frames in the states: of their coordinates (x - centre) @ coordinates, or of the frames as such."""

    gaussians: Gaussians
    centre: Floats | None = None  # (p,)
    coordinates: Floats | None = None  # (p, d)

    def __call__(self, tile: Floats) -> Floats:
        """Evaluate the densities.

        tile (n, p): frames. Returns (n, k): log densities.
        """
        if self.centre is None or self.coordinates is None:
            return log_densities(self.gaussians, tile)
        return log_densities(self.gaussians, (tile - self.centre) @ self.coordinates)

    def features(self, tile: Floats) -> Floats:
        """Return what the moments of frames are of: the frames."""
        return tile


def piece_messages(cut: Cut, markov: Markov, batch: Batch, k: int, scratch: Scratch | None = None) -> Messages:
    """Run the recursions over a batch of pieces, entered from the long-run distribution a burn-in early.

    batch: its first k values per frame are log densities; scratch: memory of the batch before. Returns of all steps;
    those of the burn-in are approximate.
    """
    entry = np.repeat(stationary_distribution(markov.transmat)[:, None], cut.chains, axis=1)
    logs = steps_first(batch, slice(0, k))
    chains = Chains(logs, safe_log(entry), np.zeros_like(entry), batch.first, cut.burn_in)
    return forward_backward(markov, chains, scratch)


def steps_first(batch: Batch, columns: slice) -> Floats:
    """Arrange values of a batch as the kernels take them.

    columns: which of its values per frame. Returns (steps, width, chains): zero where there is no frame.
    """
    return np.ascontiguousarray(batch.values[:, columns][batch.index].transpose(0, 2, 1))


@dataclass(frozen=True)
class Statistics:
    """Expected counts, and moments of the frames about a centre.

    starts (k,): expected number of sequences that start in each state; transitions (k, k): expected number of
    transitions; counts (k,): expected number of frames; first (k, p): weighted sums of frames; nearest (k,): the frame
    of greatest density in each state; origins (k, p): points less the centre, that the moments of each state are about.
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
    emission: Emissions
    markov: Markov
    origins: Origins
    second: str

    def frame_values(self, tile: Floats) -> Floats:
        """Log densities and centred features, side by side."""
        return np.hstack([self.emission(tile), self.emission.features(tile) - self.origins.centre])


def e_step_pass(
    rows: Rows,
    cut: Cut,
    emission: Emissions,
    markov: Markov,
    origins: Origins,
    second: str,
    run: Run,
    name: str = "refine",
) -> Statistics:
    """Run the forward and backward recursions over all frames, and sum what the M-step needs.

    cut: how sequences are cut into pieces; origins: what moments are taken about. Returns the same bits for any
    chunking.
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
