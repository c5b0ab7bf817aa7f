"""Selection of k anchors among the candidates by the support function they reach: the conquer step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["coverage_curve", "select_candidates", "shortfalls", "widen_simplex"]

_SLAB: Final = 2**15  # entries of a temporary array
_FLAT: Final = 1e-290  # a height up to this is none
_NOTHING: Final = 1e-6  # a shortfall below this share of the height is rounding


def shortfalls(positions: Floats, directions: Floats, heights: Floats, rounding: float = 0.0) -> Floats:
    """How far each candidate falls short of the data's height on each signed direction.

    positions (c, d): places of the candidates; directions (t, d): signed directions; heights (t,): the support
    function: greatest height of all rows on each; rounding: distance between places up to which rows are the same: what
    is missed by no more is not missed. Returns (c, t): share of the height that is missed, between 0 (reached) and 1
    (at or below the mean).
    """
    tall = np.where(heights > _FLAT, heights, 1.0)
    short = positions @ (directions / -tall[:, None]).T
    short += 1.0
    np.clip(short, 0.0, 1.0, out=short)
    short[:, heights <= _FLAT] = 0.0
    same = rounding * np.sqrt((directions**2).sum(axis=1))
    short[short < np.maximum(_NOTHING, same / tall)] = 0.0
    short[:, heights <= same] = 0.0
    return short


def select_candidates(short: Floats, n_anchors: int, sweeps: int = 2, *, n_fixed: int = 0) -> NDArray[np.intp]:
    """Select the candidates that together reach furthest: facility location on the support function.

    Greedy, then swap sweeps. Near-duplicates of a ray, whose votes are split, cost nothing here: the second one adds
    nothing to the first.
    short (c, t): what each candidate misses in each direction: `shortfalls`, or an increasing function of them;
    n_fixed: how many of the first candidates are chosen in any case. Returns (m,): indices into the candidates, the
    fixed ones first, then the most useful; m < n_anchors where fewer already reach everything.
    """
    chosen = _greedy(short, np.arange(len(short)), n_anchors, n_fixed)
    for _ in range(sweeps):
        if not _swap_each(short, chosen, n_fixed):
            break
    return np.array(_greedy(short, np.sort(chosen), len(chosen), n_fixed), dtype=np.intp)


def widen_simplex(
    positions: Floats, chosen: NDArray[np.intp], gain: float = 2.0, *, n_fixed: int = 0
) -> NDArray[np.intp]:
    """Swap anchors for candidates as long as a swap multiplies the volume of their simplex by a good factor.

    Where two near-duplicates stand for one ray, another one is missed; the volume tells, in any coordinates, while
    heights of ill-conditioned rays hardly do (Winter, N-FINDR, Proceedings of SPIE 3753, 1999, swaps at any gain).
    positions (c, d): places of the candidates; chosen (k,): the anchors among them; gain: least factor; small gains are
    noise; n_fixed: how many of the first anchors stay. Returns (k,): the anchors after the swaps; as they were unless
    k = d + 1.
    """
    lifted = np.hstack([np.ones((len(positions), 1)), positions / max(float(np.abs(positions).max(initial=0.0)), 1.0)])
    chosen = chosen.copy()
    if len(chosen) != lifted.shape[1]:
        return chosen
    for _ in range(len(chosen)):
        # Cramer's rule: putting candidate i in the place of anchor j multiplies the volume by |shares[i, j]|
        shares = np.abs(np.linalg.lstsq(lifted[chosen].T, lifted.T, rcond=None)[0].T)
        shares[:, :n_fixed] = 0.0
        candidate, place = np.unravel_index(int(shares.argmax()), shares.shape)
        if not shares[candidate, place] >= gain:
            break
        chosen[place] = candidate
    return chosen


def _greedy(short: Floats, pool: NDArray[np.intp], n_anchors: int, n_fixed: int) -> list[int]:
    chosen = list(range(n_fixed))
    reached = short[chosen].min(axis=0, initial=1.0)
    while len(chosen) < min(n_anchors, len(pool)):
        totals = _totals(short, reached, pool)
        best = int(totals.argmin())
        if chosen and totals[best] >= reached.sum() - _NOTHING:
            break  # nothing is missed any more
        chosen.append(int(pool[best]))
        np.minimum(reached, short[pool[best]], out=reached)
    return chosen


def _swap_each(short: Floats, chosen: list[int], n_fixed: int) -> bool:
    """Swap each choice for the candidate that serves best beside the others; True if one changed."""
    changed = False
    everyone = np.arange(len(short))
    for place in range(n_fixed, len(chosen)):
        others = chosen[:place] + chosen[place + 1 :]
        rest = short[others].min(axis=0) if others else np.ones(short.shape[1])
        totals = _totals(short, rest, everyone)
        best = int(totals.argmin())
        if totals[best] < totals[chosen[place]] - _NOTHING:
            chosen[place] = best
            changed = True
    return changed


def _totals(short: Floats, reached: Floats, pool: NDArray[np.intp]) -> Floats:
    """What is still missed, in sum, with each of the pool added."""
    step = max(1, min(_SLAB // max(short.shape[1], 1), len(pool)))
    held, totals = np.empty((step, short.shape[1])), np.empty(len(pool))
    whole = len(pool) == len(short)  # then the pool is everyone, in order
    for i in range(0, len(pool), step):
        some = short[i : i + step] if whole else short[pool[i : i + step]]
        np.minimum(some, reached, out=held[: len(some)]).sum(axis=1, out=totals[i : i + step])
    return totals


def coverage_curve(short: Floats) -> Floats:
    """How much of the support function the first 1, 2, ... anchors reach.

    short (k, t): shortfalls of the anchors, in order, on directions that did not take part in their selection. Returns
    (k,): mean share of the height that is reached; the last entry is the coverage of all.
    """
    if short.shape[1] == 0:
        return np.ones(len(short))
    return 1.0 - np.minimum.accumulate(short, axis=0).mean(axis=1)
