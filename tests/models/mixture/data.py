"""Planted mixtures, and the bits of a fitted one."""

import numpy as np

FITTED = (
    "weights_",
    "means_",
    "covariances_",
    "precisions_cholesky_",
    "anchor_indices_",
    "anchors_",
    "extreme_indices_",
    "votes_",
    "candidates_",
    "candidate_votes_",
    "signature_axes_",
    "lower_bound_",
    "n_iter_",
    "pulls_",
    "outliers_",
    "n_outliers_",
)
FORMS = ("diag", "full", "tied", "spherical", "tied-spherical")


def planted_mixture(n, p, k, separation=4.0, seed=0, dtype=np.float64, unequal=0.2):
    """Rows, their components, and as many rows again; means, weights and variances are unequal."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(k, 3.0)) + 0.3 / k
    means = separation * rng.standard_normal((k, p)) / np.sqrt(p)
    deviations = np.exp(unequal * rng.standard_normal((k, p)))
    labels = rng.choice(k, 2 * n, p=weights / weights.sum())
    X = (means[labels] + deviations[labels] * rng.standard_normal((2 * n, p))).astype(dtype)
    truth = {"weights_init": weights / weights.sum(), "means_init": means, "precisions_init": deviations**-2.0}
    return X[:n], labels[:n], X[n:], truth


def mixture_bits(model, names=FITTED):
    return {name: np.asarray(getattr(model, name)).tobytes() for name in names}
