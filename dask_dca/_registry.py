"""All models, a line for each: where its class is, what its report is called, and the module that writes it."""

from __future__ import annotations

from typing import Final, NamedTuple


class Model(NamedTuple):
    """Where a model's parts are."""

    home: str  # module of the class
    title: str  # of its page
    report: str | None = None  # module of its page, if it has one


MODELS: Final = {
    "NMF": Model("dask_dca.models.nmf.estimator", "Non-negative matrix factorization", "dask_dca.reporting.nmf"),
    "GaussianMixture": Model("dask_dca.models.mixture.estimator", "Gaussian mixture", "dask_dca.reporting.mixture"),
    "GaussianHMM": Model("dask_dca.models.hmm.estimator", "Hidden Markov model", "dask_dca.reporting.hmm"),
    "CategoricalHMM": Model(
        "dask_dca.models.categorical.estimator", "Hidden Markov model of symbols", "dask_dca.reporting.categorical"
    ),
    "KalmanFilter": Model("dask_dca.models.kalman.estimator", "Linear dynamical system", "dask_dca.reporting.kalman"),
    "LatentDirichletAllocation": Model("dask_dca.models.lda.estimator", "Topic model", "dask_dca.reporting.lda"),
    "SubspaceClustering": Model(
        "dask_dca.models.subspace.estimator", "Subspace clustering", "dask_dca.reporting.subspace"
    ),
}

# classes of neighbouring libraries, and what to use instead
ELSEWHERE: Final = {
    "KMeans": "use GaussianMixture(n_clusters, 'tied-spherical'), which is k-means with probabilities",
    "MiniBatchKMeans": "use GaussianMixture(n_clusters, 'tied-spherical'), which is k-means with probabilities",
    "BayesianGaussianMixture": "use GaussianMixture('auto'), which chooses the number of components",
    "MiniBatchNMF": "use NMF, whose chunks are the batches",
    "SpectralClustering": "use SubspaceClustering",
    "MultinomialHMM": "use CategoricalHMM for symbols",
    "GMMHMM": "use GaussianHMM with more states",
    "PoissonHMM": "use GaussianHMM on square roots of counts",
    "LdaModel": "use LatentDirichletAllocation on a matrix of word counts: gensim.matutils.corpus2csc(corpus).T",
    "LdaMulticore": "use LatentDirichletAllocation on a matrix of word counts: gensim.matutils.corpus2csc(corpus).T",
}
