"""Registry of the models: modules of class and report, and texts of the command."""

from __future__ import annotations

from typing import Final, NamedTuple


class Model(NamedTuple):
    """A model's modules, and the texts of its command."""

    room: str  # folder of the class; also the name of its command and of its report's module
    title: str  # title of the report
    help: str  # help text of the command, whose first sentence is the short help
    example: str  # options of an example of the command
    counted: str = "Number of components."
    counter: str = "n_components"  # the parameter that -k sets

    @property
    def home(self) -> str:
        """Module of the class."""
        return f"dask_dca.models.{self.room}.estimator"

    @property
    def report(self) -> str:
        """Module of the report."""
        return f"dask_dca.reporting.{self.room}"


MODELS: Final = {
    "NMF": Model(
        "nmf",
        "Non-negative matrix factorization",
        "Non-negative matrix factorization by rows of DATA. The basis is k of them, or another one.",
        "cube.zarr --features band --basis rays",
        "Number of anchors.",
    ),
    "GaussianMixture": Model(
        "mixture", "Gaussian mixture", "Gaussian mixture of DATA's rows.", "cells.csv --max-iter 20"
    ),
    "GaussianHMM": Model(
        "hmm",
        "Hidden Markov model",
        "Hidden Markov model of the sequences that DATA's rows are.",
        "frames.npy --lengths lengths.csv --covariance-type auto",
        "Number of states.",
    ),
    "CategoricalHMM": Model(
        "categorical",
        "Hidden Markov model of symbols",
        "Hidden Markov model of the symbols in DATA's column.",
        "symbols.npy --lengths 250,350",
        "Number of states.",
    ),
    "KalmanFilter": Model(
        "kalman",
        "Linear dynamical system",
        "Linear dynamical system behind DATA's sequences.",
        "frames.npy --lengths lengths.csv",
        "Dimension of the state.",
        "n_dim_state",
    ),
    "LatentDirichletAllocation": Model(
        "lda",
        "Topic model",
        "Topics of the documents that DATA's rows are. These are counts of words, dense or sparse.",
        "documents.zarr --min-df 5 --topic-word-prior 0.02",
        "Number of topics.",
    ),
    "SubspaceClustering": Model(
        "subspace",
        "Subspace clustering",
        "Clusters of DATA's rows by the cones that they lie in.",
        "images.zarr --damping 0.25",
        "Number of clusters.",
        "n_clusters",
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
    "VariationalGaussianHMM": "use GaussianHMM, whose covariances are shrunk",
    "VariationalCategoricalHMM": "use CategoricalHMM",
    "MarkovRegression": "use GaussianHMM",
    "UnscentedKalmanFilter": "use KalmanFilter where the dynamics are linear, and pykalman elsewhere",
    "AdditiveUnscentedKalmanFilter": "use KalmanFilter where the dynamics are linear, and pykalman elsewhere",
    "DynamicFactor": "use KalmanFilter",
    "UnobservedComponents": "use KalmanFilter",
    "LDAModel": "use LatentDirichletAllocation on a matrix of word counts",
    **{name: f"use import dask_dca as {name}" for name in ("hmm", "mixture", "decomposition")},
    "LdaModel": "use LatentDirichletAllocation on a matrix of word counts: gensim.matutils.corpus2csc(corpus).T",
    "LdaMulticore": "use LatentDirichletAllocation on a matrix of word counts: gensim.matutils.corpus2csc(corpus).T",
}
