"""One small fit of each model, for tests of what holds for all of them."""

import numpy as np

import dask_dca as dca


def documents(n=60):
    rng = np.random.default_rng(3)
    topics = rng.dirichlet(np.full(30, 0.1), 3)
    return rng.poisson(40.0 * rng.dirichlet(np.full(3, 0.3), n) @ topics).astype(np.float64)


def rays(n=90):
    rng = np.random.default_rng(4)
    return rng.dirichlet(np.full(3, 0.5), n) @ rng.random((3, 7)) + 0.01 * rng.random((n, 7))


def clusters(n=120):
    rng = np.random.default_rng(5)
    return 4.0 * rng.standard_normal((3, 6))[rng.integers(3, size=n)] + rng.standard_normal((n, 6))


def subspaces(n=120):
    rng = np.random.default_rng(6)
    bases, labels = rng.standard_normal((2, 2, 9)), rng.integers(2, size=n)
    return np.einsum("nd,ndp->np", rng.random((n, 2)) + 0.1, bases[labels])


# name -> how to make it, its data, and the methods whose results are compared
MODELS = {
    "nmf": (lambda: dca.NMF(3), rays, ("transform", "reconstruction_err")),
    "mixture": (
        lambda: dca.GaussianMixture(3, covariance_type="full", max_iter=2),
        clusters,
        ("predict", "predict_proba", "score_samples", "score", "bic", "aic"),
    ),
    "hmm": (
        lambda: dca.GaussianHMM(3, max_iter=2),
        clusters,
        ("predict", "predict_proba", "score", "score_samples", "decode", "bic", "aic"),
    ),
    "kalman": (lambda: dca.KalmanFilter(2, max_iter=2), clusters, ("filter", "smooth", "loglikelihood", "forecast")),
    "lda": (
        lambda: dca.LatentDirichletAllocation(3, min_df=1, max_iter=1),
        documents,
        ("transform", "score", "perplexity"),
    ),
    "subspace": (lambda: dca.SubspaceClustering(2), subspaces, ("predict",)),
}


def as_bytes(result):
    """A result, or several, as bytes: equal if and only if every bit is."""
    if isinstance(result, tuple):
        return tuple(as_bytes(part) for part in result)
    found = np.asarray(result.compute() if hasattr(result, "compute") else result)
    return found.dtype.str, found.shape, found.tobytes()


def fitted_bytes(model):
    return {key: as_bytes(value) for key, value in vars(model).items() if key.endswith("_") and key[0] != "_"}
