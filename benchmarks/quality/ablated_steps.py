"""Q-ablation's steps: how each is taken out of a recipe, or what is put in its place."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np

from dask_dca.geometry.moments import UNEVEN

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Step:
    """A step of a recipe: how it is taken away, by parameters or by what stands in for functions."""

    options: dict[str, Any] = field(default_factory=dict)
    instead: dict[str, Any] = field(default_factory=dict)  # what stands in for names under dask_dca.

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Take the step away."""
        with contextlib.ExitStack() as stack:
            for name, other in self.instead.items():
                stack.enter_context(patch(f"dask_dca.{name}", other))
            yield


def _first(found: Any, *_: Any, **__: Any) -> Any:
    return found


def _second(_: Any, found: Any, *__: Any, **___: Any) -> Any:
    return found


# --- mixtures ---


def _drawn_partition(rows: np.ndarray, coordinates: np.ndarray, k: int, settings: Any) -> Any:
    from dask_dca.models.kmeans import breathing_kmeans, kmeans_plusplus, lloyd

    rng, places = np.random.default_rng(settings.seed), rows @ coordinates
    places -= places.mean(axis=0)
    return breathing_kmeans(places, lloyd(places, kmeans_plusplus(places, k, rng)), rng)


def _random_partition(rows: np.ndarray, coordinates: np.ndarray, k: int, settings: Any) -> Any:
    from dask_dca.models.kmeans import Partition

    labels = np.random.default_rng(settings.seed).integers(k, size=len(rows))
    return Partition(np.zeros((k, coordinates.shape[1])), labels, 0.0)


def _raw_coordinates(rows: np.ndarray, floor: np.ndarray, k: int) -> Iterator[np.ndarray]:
    from dask_dca.models.mixture.learning import _principal_directions

    yield _principal_directions(rows - rows.mean(axis=0), k)


def _untuned(data: Any, responsibilities: Any, mixture: Any, shrinkage: Any, *_: Any) -> Any:
    return shrinkage


MIXTURE = {
    "anchors (a draw of k-means++)": Step(instead={"models.mixture.learning.start_partition": _drawn_partition}),
    "anchors and partition (random labels)": Step(
        instead={"models.mixture.learning.start_partition": _random_partition}
    ),
    "breathing": Step(instead={"models.mixture.learning.breathing_kmeans": _second}),
    "a start in features of unit variance": Step(
        instead={"models.mixture.learning.principal_coordinates": _raw_coordinates}
    ),
    "one covariance for all first": Step(instead={"models.mixture.search._TIED_PASSES": 1}),
    "split and merge": Step(instead={"models.mixture.search.split_and_merge": _second}),
    "choice of pulls": Step(
        instead={
            "models.mixture.search.tune_pull": _untuned,
            "models.mixture.search.tune_common_pull": _untuned,
        }
    ),
    "choice of the common shape's pull": Step(instead={"models.mixture.search.tune_common_pull": _untuned}),
    "full covariances": Step({"covariance_type": "diag"}),
    "a subspace for very many features": Step(instead={"models.mixture.learning._MIN_ROWS_PER_COMPONENT": 10**9}),
    "isolated rows set aside": Step(
        instead={"models.mixture.learning.isolated_rows": lambda rows, *_: np.zeros(len(rows), dtype=bool)}
    ),
    "floors by resolution (1e-6)": Step(
        instead={"models.mixture.learning.rounding_variances": lambda rows: np.full(rows.shape[1], 1e-6)}
    ),
}


# --- hidden Markov models ---


def _random_tails(tails: np.ndarray, k: int) -> np.ndarray:
    return np.random.default_rng(0).integers(len(tails), size=k)


def _drawn_tails(rows: np.ndarray, tails: np.ndarray, k: int) -> np.ndarray:
    from dask_dca.models.kmeans import kmeans_plusplus, lloyd

    return lloyd(rows, kmeans_plusplus(rows, k, np.random.default_rng(0)), 6).labels


def _random_labels(frames: np.ndarray, edges: np.ndarray, k: int, kind: str, floors: Any, seed: int, *_: Any) -> Any:
    from dask_dca.models.hmm.model import labelled_model
    from dask_dca.models.hmm.start import anchored_starts

    rng, (_, within, tails) = np.random.default_rng(seed), anchored_starts(frames, edges, k, kind, floors, seed, *_)
    model = labelled_model(frames, edges, rng.integers(k, size=len(frames)), k, kind, floors)
    jittered = model.means + 0.1 * rng.standard_normal(model.means.shape)
    return [replace(model, means=jittered)], within, tails


def _from_frames(frames: np.ndarray, edges: np.ndarray, k: int, kind: str, floors: Any, seed: int, count: Any) -> Any:
    from dask_dca.models.hmm import start
    from dask_dca.models.kmeans import within_variances

    tails = start.tail_means(start.principal_coordinates(frames, max(k - 1, 1)), frames, k, seed, count)
    labels = start._partition(frames, tails, k)
    model = start.labelled_model(frames, edges, labels, k, kind, floors)
    return [model], within_variances(frames, labels, k), tails


HMM = {
    "anchors (a draw of k-means++)": Step(instead={"models.hmm.start._partition": _drawn_tails}),
    "choice among tails (random ones)": Step(instead={"models.hmm.start.spread_points": _random_tails}),
    "all anchors (random labels)": Step(instead={"models.hmm.fit.anchored_starts": _random_labels}),
    "starts by lifted features": Step(instead={"models.hmm.fit.anchored_starts": _from_frames}),
    "split and merge": Step(instead={"models.hmm.fit.split_and_merge": _first}),
    "steps on the sample": Step(instead={"models.hmm.fit._SAMPLE_STEPS": (0, 0)}),
    "floors by state": Step(instead={"models.hmm.fit.with_local_floors": _first}),
}


# --- Kalman filters ---


def _plain_step(sample: Any, system: Any, whole: Any, form: Any, is_all: bool) -> Any:
    from dask_dca.models.kalman.em import m_step
    from dask_dca.models.kalman.fit import contiguous

    return contiguous(m_step(whole))


def _positive(correlations: np.ndarray, n: float) -> np.ndarray:
    from dask_dca.models.kalman.system import positive_part

    return positive_part(correlations, 1e-6)


KALMAN = {
    "depths to choose from (the least)": Step(instead={"models.kalman.start._WINDOW_DEPTHS": ()}),
    "depths to choose from (eight)": Step(instead={"models.kalman.start._WINDOW_DEPTHS": (8,)}),
    "two steps before all others": Step(instead={"models.kalman.fit._short_em": _first}),
    "a second start, whose innovations are states": Step(instead={"models.kalman.fit._likelier_system": _first}),
    "extrapolation": Step(instead={"models.kalman.em._ANDERSON_MEMORY": 0}),
    "EM passes": Step({"max_iter": 0}),
    "correlated noise": Step({"covariance_type": "diag"}),
    "shrinkage of correlations": Step(
        instead=dict.fromkeys(
            ("models.kalman.start.shrink_correlations", "models.kalman.em.shrink_correlations"), _positive
        )
    ),
}


# --- topics ---


def _random_words(points: Any, candidates: np.ndarray, k: int, given: Any = None) -> np.ndarray:
    return np.sort(np.random.default_rng(0).choice(candidates, k, replace=False))


def _spa_words(points: Any, candidates: np.ndarray, k: int, given: Any = None) -> np.ndarray:
    from dask_dca.models.lda.topics import select_words

    return select_words(points, np.flatnonzero(points.recovery.any(axis=1)), k)


def _ungrouped(points: Any, anchors: np.ndarray, descend: Any) -> Any:
    return points.recovery[anchors], None


LDA = {
    "divide (successive projection on all words)": Step(instead={"models.lda.fit.select_words": _spa_words}),
    "anchors (random words)": Step(instead={"models.lda.fit.select_words": _random_words}),
    "vertices from groups of words": Step(instead={"models.lda.fit.grouped_vertices": _ungrouped}),
    "EM passes": Step({"max_iter": 0}),
    "EM passes but two": Step({"max_iter": 2}),
    "documents that say when to end": Step(instead={"models.lda.refine._HELD_OUT_SHARE": 0.0}),
    "long steps": Step(instead={"models.lda.refine._TOPIC_POWER": 1.0}),
}
TEXT = {
    **LDA,
    "a start in two levels": Step(
        instead={"models.lda.refine.two_level_topics": lambda topics, weights, p, n: _smoothed(topics, p)}
    ),
    "splits and merges": Step(instead={"models.lda.refine.search_topics": lambda *_: None}),
    "roots of counts": Step(
        instead={"models.lda.refine.damped_counts": _first, "models.lda.passes.damped_counts": _first}
    ),
    "all that is for bursts": Step(instead={"models.lda.refine._MIN_BURSTINESS": np.inf}),
}


def _smoothed(topics: np.ndarray, probability: np.ndarray) -> np.ndarray:
    from dask_dca.models.lda.topics import smooth_topics

    return smooth_topics(topics, probability)


# --- subspaces ---


def _first_centres(rows: np.ndarray, landmarks: np.ndarray, k: int) -> Any:
    from dask_dca.models.kmeans import kmeans_plusplus, lloyd
    from dask_dca.models.subspace.landmarks import quantise

    best = lloyd(rows, kmeans_plusplus(rows, k, np.random.default_rng(0)))
    return best.labels, quantise(best.centres)


def _first_landmarks(rows: np.ndarray, count: int, seed: int) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).permutation(len(rows))[:count])


def _whole(energies: np.ndarray, noise: float, aspect: float) -> np.ndarray:
    return np.ones(len(energies))


SUBSPACE = {
    "sweeps": Step({"max_iter": 0}),
    "shrinkage of subspaces": Step(instead={"models.subspace.clusters.shrinkage": _whole}),
    "codes again where there are no clear parts": Step({"damping": 0.0}),
    "graphs in which far neighbours fade": Step(instead={"models.subspace.fit._RANK_DECAYS": ()}),
    "two of these three": Step(instead={"models.subspace.fit._RANK_DECAYS": ((5.0, 1),)}),
    "eigenvectors beyond the number of clusters": Step(instead={"models.subspace.fit._EXTRA_EIGENVECTORS": 1}),
    "Ward's tree (k-means++)": Step(instead={"models.subspace.fit._k_means_from_ward": _first_centres}),
    "choice of landmarks (random rows)": Step(instead={"models.subspace.fit.choose_landmarks": _first_landmarks}),
    "half of the landmarks": Step({"n_landmarks": 1000}),
}


# --- anchors ---


NMF = {
    "whitened and isotropic directions": Step({"ensemble": "row-space"}),
    "row-space directions": Step({"ensemble": "gaussian"}),
    "selection by reach (most votes)": Step({"selection": "votes"}),
    "swaps by volume": Step(instead={"geometry.votes.widen_simplex": lambda places, chosen, **_: chosen}),
    "swaps by reach": Step(instead={"geometry.votes._swap_each": lambda *_: False}),
    "XRAY on few noisy rows": Step(instead={"anchoring.robust._MIN_LEADING_SHRINKAGE": 0.0}),
    "heights that are even but for noise": Step(instead={"geometry.evenness.find_level": lambda *_: UNEVEN}),
    "weights of features": Step(
        instead={
            "geometry.moments._feature_weights": lambda covariance, n: np.ones(len(covariance)),
            "geometry.moments._row_feature_weights": lambda rows, level: np.ones(rows.shape[1]),
        }
    ),
    "weights of rows": Step(
        instead={
            "geometry.moments.huber_weights": lambda rows, energy: np.ones(len(rows)),
        }
    ),
    "shrinkage of the subspace": Step(instead={"geometry.moments.shrinkage": _whole}),
    "three quarters of the planes": Step({"n_subproblems": 150}),
}

STEPS: dict[str, dict[str, Step]] = {
    "mixture": MIXTURE,
    "mixture, many rows": {
        "passes over all rows": Step({"max_iter": 0}),
        "steps on the sample after a pass": Step(instead={"models.mixture.em._MAX_SAMPLE_STEPS": 0}),
        "passes over the whole sample": Step(instead={"models.mixture.learning._run_final_passes": _second}),
    },
    "hmm": HMM,
    "hmm, many frames": {
        "passes over all frames": Step({"max_iter": 0}),
        "steps on the sample after a pass": Step(instead={"models.hmm.fit._CORRECTED_STEPS": (0, 0)}),
    },
    "kalman": KALMAN,
    "kalman, many frames": {
        "passes over all frames": Step({"max_iter": 0}),
        "steps on the sample after a pass": Step(instead={"models.kalman.fit._corrected_m_step": _plain_step}),
    },
    "lda": LDA,
    "lda, text": TEXT,
    "subspace": SUBSPACE,
    "nmf": NMF,
}
