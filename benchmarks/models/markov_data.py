"""Sequences for the benchmarks of hidden Markov models."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from benchmarks.data import archive, path_to


@dataclass(frozen=True)
class Chain:
    """A hidden Markov model's truth, training frames, and fresh ones of the same model."""

    startprob: np.ndarray
    transmat: np.ndarray
    means: np.ndarray
    deviations: np.ndarray
    covariances: np.ndarray  # (k, p, p)
    frames: np.ndarray
    states: np.ndarray
    fresh: np.ndarray


@dataclass(frozen=True)
class Motion:
    """A recording: frames with a label each, and which of them are for training."""

    frames: np.ndarray
    labels: np.ndarray
    lengths: np.ndarray  # of the parts between the cuts, training and test in turn
    train: np.ndarray  # of bool

    def part(self, *, train: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Frames, lengths and labels of one side of the cuts."""
        mask = self.train if train else ~self.train
        return self.frames[mask], self.lengths[0 if train else 1 :: 2], self.labels[mask]


# sequence: frames of a sub-sequence, of which the first are for training (the paper's table)
SPLITS = {
    "13_29": (39, 63),
    "13_30": (25, 51),
    "13_31": (25, 50),
    "14_06": (24, 40),
    "14_14": (29, 43),
    "14_20": (29, 43),
}


def chain(k: int, p: int, apart: float, n: int, seed: int, kind: str = "plain") -> Chain:
    """Gaussian states at a median distance; half of the probability stays, the other is Dirichlet(1)."""
    rng = np.random.default_rng(seed)
    means = rng.standard_normal((k, p))
    distances = np.sqrt(((means[:, None] - means) ** 2).sum(axis=2))
    means *= apart / np.median(distances[np.triu_indices(k, 1)])
    transmat = 0.5 * rng.dirichlet(np.ones(k), k) + 0.5 * np.eye(k)
    if kind == "low rank":
        transmat = rng.dirichlet(np.ones(2), k) @ rng.dirichlet(np.full(k, 0.3), 2)
    deviations = rng.uniform(0.6, 1.4, (k, p))
    if kind == "variances":
        means, deviations = np.zeros((k, p)), np.exp(rng.uniform(-1.0, 1.0, (k, p)))
        transmat = 0.1 * rng.dirichlet(np.ones(k), k) + 0.9 * np.eye(k)
    mix = np.linalg.cholesky(0.4 * np.ones((p, p)) + 0.6 * np.eye(p)).T if kind == "correlated" else np.eye(p)
    drawn = []
    for count in (n, 10_000):
        states = _walk(transmat, count, rng)
        drawn.append((states, means[states] + (deviations[states] * rng.standard_normal((count, p))) @ mix))
    covariances = mix.T @ (deviations[:, :, None] ** 2 * mix)
    return Chain(np.full(k, 1.0 / k), transmat, means, deviations, covariances, drawn[0][1], drawn[0][0], drawn[1][1])


def one_dimensional(seed: int) -> np.ndarray:
    """1,500 frames of four states on a line, whose likelihood has many local optima."""
    rng = np.random.default_rng(seed)
    transmat = np.full((4, 4), 0.02) + 0.92 * np.eye(4)
    states = _walk(transmat, 1500, rng)
    return (np.array([-3.0, -1.0, 1.0, 3.0])[states] + 0.6 * rng.standard_normal(1500))[:, None]


def _walk(transmat: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    cumulated, draws = transmat.cumsum(axis=1), rng.random(n)
    states = np.empty(n, dtype=np.int64)
    states[0] = rng.integers(len(transmat))
    for t in range(1, n):
        states[t] = min(int(np.searchsorted(cumulated[states[t - 1]], draws[t])), len(transmat) - 1)
    return states


def stocks() -> np.ndarray:
    """Daily log returns (5035, 28) in per cent of the Dow-30 companies that were listed throughout 1995 to 2014."""
    table = np.genfromtxt(path_to("stocks/dow30_daily_1995_2014.csv"), delimiter=",", skip_header=1)[:, 1:]
    prices = table[:, np.isfinite(table).all(axis=0)]
    return 100.0 * np.diff(np.log(prices), axis=0)


def motion(sequence: str, reach: int) -> Motion:
    """A labelled recording; `reach` > 0 gives mean and deviation over that many frames on either side of a part."""
    with archive("mocap6/mocap6.npz") as file:
        frames, labels = file[f"X_{sequence}"], file[f"z_{sequence}"].astype(int)
    first, whole = SPLITS[sequence]
    edges = [0]
    while edges[-1] < len(frames):
        step = first if len(edges) % 2 else whole - first
        edges.append(min(edges[-1] + step, len(frames)))
    lengths = np.diff(edges)
    train = np.repeat(np.arange(len(lengths)) % 2 == 0, lengths)
    if reach:
        parts = [windows(frames[a:b], reach) for a, b in itertools.pairwise(edges)]
        frames = np.concatenate(parts)
    return Motion(frames, labels, lengths, train)


def windows(frames: np.ndarray, reach: int) -> np.ndarray:
    """Mean and standard deviation of each frame's neighbourhood, clipped to the sequence."""
    t = np.arange(len(frames))
    low, high = np.maximum(t - reach, 0), np.minimum(t + reach + 1, len(frames))
    sums = [np.concatenate([np.zeros((1, frames.shape[1])), np.cumsum(frames**power, axis=0)]) for power in (1, 2)]
    mean, square = ((total[high] - total[low]) / (high - low)[:, None] for total in sums)
    return np.hstack([mean, np.sqrt(np.maximum(square - mean**2, 0.0))])
