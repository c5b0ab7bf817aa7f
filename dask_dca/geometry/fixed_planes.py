"""Extreme rows of planes that are fixed beforehand: what is kept is the same for any cut of the rows, in any order.

A row's place and its heights are integers below 2**53, and among rows of one height a hash of their content decides, so
no number, batch or order of arrival has a say in which rows are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.geometry import planes
from dask_dca.geometry.coordinates import ratios
from dask_dca.geometry.extremes import NOBODY, ArgBest, integer_directions
from dask_dca.geometry.row_hashes import column_keys, hash_of_contents, weigh_values

if TYPE_CHECKING:
    from dask_dca.geometry.arrays import Floats, Numbers


PLACE_BITS: Final = 31  # of the height of a row; directions have a length of 2**20, and products stay below 2**52
_TOGETHER: Final = 512  # rows whose heights are held at once
_SAMPLE: Final = 128  # rows of least hash, which are kept to judge a model by


@dataclass(frozen=True)
class FixedPlanes:
    """Planes of all ones and Gaussian directions in feature space: what regenerates them anywhere."""

    seed: int
    count: int  # planes that vote
    fresh: int  # further ones, which only tell what the anchors reach
    n_features: int

    def directions(self) -> Floats:
        """Return the integer directions, shape (count + fresh, p): made once a process."""
        return _directions(self.seed, self.count + self.fresh, self.n_features)


@lru_cache(maxsize=2)
def _directions(seed: int, count: int, n_features: int) -> Floats:
    found = planes.directions("gaussian", seed, np.arange(count), np.ones(n_features))
    return integer_directions(found)


def places_of(scaled: Floats) -> Floats:
    """Round rows of sum one to integers, in place, so that their heights are exact.

    scaled (n, p): non-negative rows, as `ratios` returns them; overwritten. Returns (n, p): the same array.
    """
    scaled *= 2.0**PLACE_BITS
    return np.rint(scaled, out=scaled)


@dataclass(frozen=True)
class KeptRows:
    """The extreme rows of fixed planes, and those of least hash: the sum of two is that of both sets of rows."""

    best: ArgBest  # (2, t) greatest heights along each direction and against it, and the hashes of their rows
    hashes: Numbers  # (c,) of the rows' contents, increasing
    rows: Floats  # (c, p) as they were read
    numbers: Numbers  # (c,) the lowest number of a row of this content

    @classmethod
    def none(cls, planes_: FixedPlanes) -> KeptRows:
        """Return the neutral element of the sum."""
        empty = np.zeros(0, dtype=np.int64)
        best = ArgBest.nobody((2, planes_.count + planes_.fresh))
        return cls(best, empty, np.zeros((0, planes_.n_features)), empty)

    @classmethod
    def of_rows(cls, rows: Floats, scaled: Floats, numbers: Numbers, planes_: FixedPlanes) -> KeptRows:
        """Keep what counts of some rows.

        rows (n, p): non-negative rows; scaled (n, p): the same, of sum one; overwritten; numbers (n,): their numbers.
        """
        hashes = content_hashes(rows)
        order = np.argsort(hashes, kind="stable")
        best = _extremes(places_of(scaled)[order], hashes[order], planes_.directions())
        return cls(best, hashes, rows, numbers)._reduced()

    @classmethod
    def again(cls, rows: Floats, numbers: Numbers, holders: Numbers, planes_: FixedPlanes) -> KeptRows:
        """Make kept rows of what was saved of them.

        holders (2, t): which of the rows is extreme; -1 for none.
        """
        places, directions, hashes = places_of(ratios(rows)[0]), planes_.directions(), content_hashes(rows)
        heights = np.stack([np.einsum("tp,tp->t", directions, places[of]) for of in holders])
        heights[1] *= -1.0
        there = holders >= 0
        best = ArgBest(np.where(there, heights, -np.inf), np.where(there, hashes[holders], NOBODY), _nothing(heights))
        return cls(best, hashes, rows, numbers)

    def __add__(self, other: KeptRows) -> KeptRows:
        return KeptRows(
            self.best + other.best,
            np.concatenate([self.hashes, other.hashes]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.numbers, other.numbers]),
        )._reduced()

    @property
    def holders(self) -> Numbers:
        """Which of the rows is extreme on each signed direction, shape (2, t); -1 for none."""
        at = np.searchsorted(self.hashes, self.best.rows)
        return np.where(self.best.rows == NOBODY, -1, at)

    @property
    def sample(self) -> Floats:
        """At most 128 rows, drawn without regard to anything but a hash of their content."""
        return self.rows[:_SAMPLE]

    def _reduced(self) -> KeptRows:
        """The rows that count, each content once, in the order of their hashes."""
        order = np.lexsort((self.numbers, self.hashes))
        hashes = self.hashes[order]
        order = order[np.diff(hashes, prepend=-1) > 0]
        hashes = self.hashes[order]
        counts = np.isin(hashes, self.best.rows)
        counts[:_SAMPLE] = True
        order = order[counts]
        return KeptRows(self.best, self.hashes[order], self.rows[order], self.numbers[order])


def content_hashes(rows: Floats) -> Numbers:
    """Hash rows by what they hold alone.

    rows (n, p): any rows. Returns (n,): integers from 0 to 2**62.
    """
    found = hash_of_contents(weigh_values(rows, column_keys(0, rows.shape[1])))
    return (found >> np.uint64(2)).astype(np.int64)


def _extremes(places: Floats, hashes: Numbers, directions: Floats) -> ArgBest:
    """The greatest heights of rows, which are in the order of their hashes: the first of equal ones wins."""
    found, every = ArgBest.nobody((2, len(directions))), np.arange(len(directions))
    for start in range(0, len(places), _TOGETHER):
        heights, here = directions @ places[start : start + _TOGETHER].T, hashes[start : start + _TOGETHER]
        most, least = heights.argmax(axis=1), heights.argmin(axis=1)
        keys = np.stack([heights[every, most], -heights[every, least]])
        found += ArgBest(keys, np.stack([here[most], here[least]]), _nothing(keys))
    return found


def _nothing(keys: Floats) -> Floats:
    return np.zeros((*keys.shape, 0))
