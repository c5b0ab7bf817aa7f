"""Choices that a hidden Markov model leaves to the data: the number of states, and the form of covariances."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dask_dca.engine.decoding import Decoder
from dask_dca.engine.held import call, call_each
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.models.hmm_fit import fit_hmm
from dask_dca.models.hmm_frames import take_stretches
from dask_dca.models.hmm_parameters import WIDEST, count_parameters
from dask_dca.models.hmm_prepared import prepare

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run as Runs
    from dask_dca.engine.rows import Rows
    from dask_dca.models.hmm_frames import Stretches
    from dask_dca.models.hmm_prepared import HMMSettings

    Numbers = NDArray[np.int64]

__all__ = ["choose_covariances", "choose_states"]

_MOST_SIGNALS: Final = 30
_WORSE: Final = 2  # numbers of states in a row that must be worse before the search ends
_FARTHEST: Final = 8  # states above the number that the spectrum shows
_HELD_OUT: Final = 0.2
_TRIAL: Final = {"max_iter": 3, "n_starts": 2}


def choose_states(rows: Rows, edges: Numbers, settings: HMMSettings, run: Runs) -> tuple[int, tuple[int, int]]:
    """
    Choose the number of states on a sample of frames.

    Parameters
    ----------
    rows, edges, settings, run : object
        As `fit_hmm` takes them.

    Returns
    -------
    count : int
        The number of least BIC, from the one that the covariances at lags show upwards.
    bounds : tuple of int
        Least and greatest of the two rules' numbers.
    """
    return call(run, "count", _count_states, take_stretches(rows, edges, run).held, settings)


def _count_states(sample: Stretches, settings: HMMSettings) -> tuple[int, tuple[int, int]]:
    rows, edges = sample.rows, sample.edges
    trial = replace(settings, max_iter=_TRIAL["max_iter"], n_starts=_TRIAL["n_starts"])
    most = min(_MOST_SIGNALS, rows.n_rows)
    seen = prepare(rows, edges, take_stretches(rows, edges, Run()), most, trial, Run())
    shown = min(seen.coordinates.n_signals + 1, most)
    criteria: dict[int, float] = {}
    for k in range(max(shown - 1, 1), min(shown + _FARTHEST, most) + 1):
        found = fit_hmm(rows, edges, k, trial, Run())
        likelihood = found.refined.log_likelihoods[-1] * rows.n_rows
        penalty = count_parameters(settings.covariance_type, k, rows.n_features) * np.log(rows.n_rows)
        criteria[k] = penalty - 2.0 * likelihood
        best = min(criteria, key=lambda count: criteria[count])
        if k - best >= _WORSE:
            break
    return best, (min(best, shown), max(best, shown))


def choose_covariances(rows: Rows, edges: Numbers, k: int, settings: HMMSettings, run: Runs) -> str:
    """
    Choose between diagonal and shared full covariances, by the likelihood of frames that were held out.

    Parameters
    ----------
    rows, edges, k, settings, run : object
        As `fit_hmm` takes them.

    Returns
    -------
    {"diag", "tied"}
        The form under which the last fifth of a sample is more likely: "tied" where noise is correlated.
    """
    if rows.n_features > WIDEST:
        return "diag"
    sample = take_stretches(rows, edges, run)
    cut = int((1.0 - _HELD_OUT) * sample.n_frames)
    if cut < 2 * k or cut == sample.n_frames:
        return "diag"
    kinds = ("diag", "tied")
    each = [(cut, k, replace(settings, covariance_type=kind)) for kind in kinds]
    scores = call_each(run, "form", _held_out, sample.held, each)
    return kinds[int(np.argmax(scores))]


def _held_out(sample: Stretches, cut: int, k: int, settings: HMMSettings) -> float:
    """The likelihood of frames from `cut` on, of a model of those before it."""
    inner = sample.edges[1:-1]
    ends = [np.concatenate([[0], inner[inner < cut], [cut]]), np.concatenate([[cut], inner[inner > cut]])]
    ends[1] = np.append(ends[1], sample.rows.n_rows) - cut
    parts = [as_rows(sample.frames[:cut]), as_rows(sample.frames[cut:])]
    model = fit_hmm(parts[0], ends[0], k, settings, Run()).refined.model
    return Decoder(parts[1], ends[1], model.emission(), model.markov, 0, Run()).log_likelihood()
