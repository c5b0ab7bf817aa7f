"""Fitted attributes of all models: the table by which models are saved, loaded and converted to xarray."""

from __future__ import annotations

import math
from typing import Any, Final

from dask_dca.geometry.arrays import Numbers
from dask_dca.geometry.low_rank import LowRank
from dask_dca.geometry.votes import wilson_bounds
from dask_dca.models.fitted import (
    Attribute,
    definite,
    distribution,
    factor,
    floats,
    grouped,
    integers,
    not_too_small,
    positive_sum,
    semidefinite,
)

COVARIANCES: Final[dict[str | int, tuple[str, ...]]] = {
    "full": ("parts", "features", "features"),
    "tied": ("features", "features"),
    "diag": ("parts", "features"),
    "spherical": ("parts",),
    "tied-spherical": (),
    "subspace": ("parts", "direction", "direction"),
}
COMMON: Final = {
    "n_features_in_": integers(minimum=1),
    "n_passes_": integers(),
    "feature_names_in_": Attribute(("features",), "O", group="names"),
    "feature_dim_in_": Attribute((), "U", group="dimension"),
    "time_dim_in_": Attribute((), "U", group="time"),  # of models of sequences
    "feature_values_in_": Attribute(("features",), "fiu", -math.inf, math.inf, undefined=True, group="coordinates"),
}
_MAX_TRANSITION: Final = 1e3  # maximum entry of a transition matrix
_MAX_COVARIANCE: Final = 1e60  # maximum covariance for which SciPy solves the Riccati equation
_COMPLETION: Final = grouped(
    "completion",
    {
        "completion_mean_": floats("features"),
        "completion_loadings_": floats("features", "completion_axis"),
        "completion_spread_": floats("features", "completion_axis", "completion_axis", rule=definite),
        "completion_noise_": floats(minimum=1e-300),
    },
)
_VOTES: Final = {
    "anchor_indices_": integers("parts", minimum=-1),
    "votes_": integers("parts"),
    "vote_share_": floats("parts", minimum=0.0, maximum=1.0),
    "vote_confidence_": floats("parts", "bound", minimum=0.0, maximum=1.0),
    "n_subproblems_": integers(),
}


def keep_completion(model: Any, completion: LowRank | None) -> None:
    """Store the low-rank model of rows with missing entries in fitted attributes, if a fit made one."""
    if completion is not None:
        model.completion_mean_, model.completion_loadings_ = completion.mean, completion.loadings
        model.completion_spread_, model.completion_noise_ = completion.spread, completion.noise


def completion_of(model: Any) -> LowRank | None:
    """Return the low-rank model of rows with missing entries, if the fit made one."""
    if not hasattr(model, "completion_mean_"):
        return None
    return LowRank(
        model.completion_mean_, model.completion_loadings_, model.completion_spread_, float(model.completion_noise_)
    )


def vote_attributes(votes: Numbers, n_planes: int) -> dict[str, Any]:
    """Compute the fitted attributes of votes (k,) on a number of planes."""
    shares, bounds = votes / n_planes, wilson_bounds(votes, n_planes)
    return {"votes_": votes, "vote_share_": shares, "vote_confidence_": bounds, "n_subproblems_": n_planes}


_HISTORY: Final = {
    "log_likelihoods_": floats("pass", filled=True),
    "n_iter_": integers(),
    "converged_": Attribute(kinds="b"),
}
_MISSING: Final = grouped("missing", {"n_missing_entries_": integers()})  # of models that accept missing entries
_CANDIDATES: Final = {"candidates_": integers("candidate"), "candidate_votes_": integers("candidate")}

_PRODUCTS: Final[dict[str | int, tuple[str, ...]]] = {**COVARIANCES, "tied-spherical": ("parts",)}


_CHAIN: Final = {
    **COMMON,
    **_HISTORY,
    "startprob_": floats("parts", minimum=0.0, rule=distribution),
    "transmat_": floats("parts", "next", minimum=0.0, rule=distribution),
    "start_scores_": floats("start"),
    "n_components_": integers(minimum=1),
    "n_sequences_": integers(minimum=1),
}
_CHAIN_SUMS: Final = {"starts": floats("parts", minimum=0.0), "transitions": floats("parts", "next", minimum=0.0)}


def _stream_state(
    sums: dict[str, Attribute], others: dict[str, Attribute], optional: dict[str, Attribute] | None = None
) -> dict[str, Attribute]:
    """Declare the state of `partial_fit`: sums of the fit and of later batches, and what else the M-step needs."""
    first = {f"first_{name}_": attribute for name, attribute in sums.items()}
    later = {f"later_{name}_": attribute for name, attribute in sums.items()}
    first |= {"n_samples_seen_": integers(), "first_tallies_": integers("tally")} | others
    found = grouped("stream", first) | grouped("later", later)
    for which in ("first", "later"):
        found |= grouped(f"{which}-more", {f"{which}_{name}_": some for name, some in (optional or {}).items()})
    return found


NMF: Final[dict[str, Attribute]] = {
    **COMMON,
    **_VOTES,
    **_CANDIDATES,
    "components_": floats("parts", "features", minimum=0.0, rule=not_too_small),
    "coverage_": floats(minimum=0.0, undefined=True),
    "coverage_curve_": floats("anchors_used", minimum=0.0),
    "explained_variance_ratio_": floats(),
    "n_components_": integers(minimum=1),
    "n_components_range_": integers("range"),
    "n_pointed_": integers(),
    "n_zero_rows_": integers(),
    "n_clipped_entries_": integers(),
    "basis_": Attribute(kinds="U"),
    "n_iter_": integers(),
    "converged_": Attribute(kinds="b"),
    **grouped("rays", {"simplex_growth_": floats(minimum=0.0), "simplex_outside_": floats(minimum=0.0)}),
    "reconstruction_err_": floats(minimum=0.0, maximum=math.inf, group="error"),
    "n_unobserved_rows_": integers(),
    **_MISSING,
    "n_samples_seen_": integers(),
    **_COMPLETION,
    **grouped(
        "stream",
        {
            "stream_seed_": integers(),
            "stream_rows_": floats("stream_row", "features", minimum=0.0, filled=True),
            "stream_numbers_": integers("stream_row"),
            "stream_extremes_": integers("axis", "plane", filled=True),
        },
    ),
}

MIXTURE: Final[dict[str, Attribute]] = {
    **COMMON,
    **_VOTES,
    **_CANDIDATES,
    "weights_": floats("parts", minimum=0.0, rule=distribution),
    "means_": floats("parts", "features"),
    "covariances_": Attribute(COVARIANCES, rule=definite),
    "precisions_cholesky_": Attribute(COVARIANCES, rule=factor),
    "covariance_type_": Attribute(kinds="U"),
    "pulls_": floats("kind_of_pull", minimum=0.0, maximum=math.inf),
    "shrinkage_target_": Attribute(kinds="U"),
    **grouped("tails", {"degrees_of_freedom_": floats(minimum=0.0, maximum=math.inf)}),
    "outliers_": integers("outlier"),
    "n_outliers_": integers(),
    **grouped("unobserved", {"n_unobserved_rows_": integers()}),
    **_MISSING,
    **grouped("subspace", {"subspace_": floats("direction", "features"), "noise_variance_": floats(minimum=0.0)}),
    "anchors_": floats("parts", "features"),
    "extreme_indices_": integers("parts", minimum=-1),
    "signature_axes_": floats("axis", "features"),
    "bic_curve_": floats("trial", "count_and_bic"),
    **_HISTORY,
    "n_components_": integers(minimum=1),
    **_stream_state(
        {
            "counts": floats("parts", minimum=0.0),
            "sums": Attribute({"subspace": ("parts", "direction"), 2: ("parts", "features")}),
            "products": Attribute(_PRODUCTS),
        },
        {
            "stream_origins_": floats("parts", "features"),
            "stream_floor_": Attribute({"subspace": ("direction",), 1: ("features",)}, minimum=0.0),
            "stream_evidence_": floats("parts", minimum=0.0),
            "stream_least_": floats(minimum=-math.inf, maximum=math.inf),
        },
    ),
}

HMM: Final[dict[str, Attribute]] = {
    **_CHAIN,
    **_VOTES,
    "means_": floats("parts", "features"),
    "covariances_": Attribute(COVARIANCES, rule=definite),
    "covariance_type_": Attribute(kinds="U"),
    "state_counts_": floats("parts", minimum=0.0, rule=positive_sum),
    "n_components_range_": integers("range"),
    "burn_in_": integers(maximum=128),
    **_stream_state(
        _CHAIN_SUMS
        | {
            "counts": floats("parts", minimum=0.0),
            "sums": floats("parts", "features"),
            "products": Attribute(_PRODUCTS),
        },
        {"stream_origins_": floats("parts", "features"), "stream_floor_": floats("features", minimum=0.0)},
    ),
    **grouped("unobserved", {"n_unobserved_rows_": integers()}),
    **_MISSING,
}

CATEGORICAL: Final[dict[str, Attribute]] = {
    **_CHAIN,
    "emissionprob_": floats("parts", "symbols", minimum=0.0, rule=distribution),
    "anchor_symbols_": integers("parts", minimum=-1),
    "n_symbols_": integers(minimum=1),
    **_stream_state(_CHAIN_SUMS | {"emissions": floats("parts", "symbols", minimum=0.0)}, {}),
}

KALMAN: Final[dict[str, Attribute]] = {
    **COMMON,
    **grouped("anchors", _VOTES),
    "transition_matrices_": floats("next", "parts", minimum=-_MAX_TRANSITION, maximum=_MAX_TRANSITION),
    "observation_matrices_": floats("features", "parts"),
    "transition_covariance_": floats("parts", "parts", maximum=_MAX_COVARIANCE, rule=semidefinite),
    "observation_covariance_": Attribute(
        {1: ("features",), 2: ("features", "features")}, maximum=_MAX_COVARIANCE, rule=semidefinite
    ),
    "observation_offsets_": floats("features"),
    "initial_state_mean_": floats("parts"),
    "initial_state_covariance_": floats("parts", "parts", maximum=_MAX_COVARIANCE, rule=semidefinite),
    "n_dim_state_": integers(minimum=1),
    "n_sequences_": integers(minimum=1),
    **_MISSING,
    **grouped(
        "refined",
        {
            **_HISTORY,
            "canonical_correlations_": floats("correlation"),
            "explained_variance_ratio_": floats(),
            "correlated_noise_": floats(undefined=True),
        },
    ),
    **_stream_state(
        {
            "every": floats("lifted", "lifted"),
            **{name: floats("parts", "next") for name in ("pairs", "before", "after", "starts")},
            "start_means": floats("parts"),
            "cross": floats("features", "lifted"),
            "second": Attribute({1: ("features",), 2: ("features", "features")}),
            "sequences": floats("count", minimum=0.0),
        },
        {"stream_centre_": floats("features"), "stream_unit_": floats("features", minimum=0.0)},
        {"seen": Attribute({2: ("lifted", "lifted"), 3: ("features", "lifted", "lifted")})},
    ),
}

TOPICS: Final[dict[str, Attribute]] = {
    **COMMON,
    **{name: attribute for name, attribute in _VOTES.items() if name != "anchor_indices_"},
    **_CANDIDATES,
    "anchor_words_": integers("parts", maximum="features"),
    "candidates_": integers("candidate", maximum="features"),
    "components_": floats("parts", "features", minimum=0.0, rule=distribution),
    "topic_weights_": floats("parts", minimum=0.0, rule=distribution),
    "topic_distances_": floats("parts", minimum=0.0),
    "distance_to_corpus_": floats("parts", minimum=0.0),
    "alpha_": floats("parts", undefined=True),
    "word_probabilities_": floats("features", minimum=0.0, rule=distribution),
    "spectrum_": floats("eigenvalue"),
    "noise_edge_": floats(undefined=True),
    "log_likelihoods_": floats("pass"),
    "burstiness_": floats(minimum=0.0, undefined=True),
    "n_moves_": integers(),
    "n_components_": integers(minimum=1),
    "n_iter_": integers(),
    "converged_": Attribute(kinds="b"),
    "n_words_": integers(minimum=1),
    "n_documents_": integers(),
    "n_empty_documents_": integers(),
    "n_short_documents_": integers(),
    **_stream_state(
        {
            "counts": floats("parts", "features", minimum=0.0),
            "words": floats("features", minimum=0.0),
            "documents": floats("features", minimum=0.0),
            "used": floats("count", minimum=0.0),
        },
        {},
    ),
}

CLUSTERS: Final[dict[str, Attribute]] = {
    **COMMON,
    **_VOTES,
    "anchor_clusters_": integers("parts", maximum="cluster"),
    "components_": floats("parts", "features"),
    "cluster_sizes_": integers("cluster"),
    "coverage_by_cluster_": floats("cluster", undefined=True),
    "spectrum_": floats("eigenvalue"),
    "sketch_": floats("features", "sketch_axis"),
    "bases_": floats("cluster", "sketch_axis", "direction"),
    "axes_": floats("cluster", "sketch_axis"),
    "landmarks_": floats("landmark", "sketch_axis"),
    "nodes_": floats("landmark", "vector"),
    "centres_": floats("cluster", "vector"),
    "ridge_": floats(minimum=0.0),
    "n_clusters_": integers(minimum=1),
    "n_components_": integers(minimum=1),
    "n_iter_": integers(),
    "n_zero_rows_": integers(),
    "n_landmarks_": integers(),
    "n_vectors_": integers(),
    "sketch_dim_": integers(),
    "subspace_dim_": integers(),
    **grouped("unobserved", {"n_unobserved_rows_": integers()}),
    **_MISSING,
    "sketch_energies_": floats("sketch_axis", minimum=0.0, group="energies"),
    **_COMPLETION,
}
