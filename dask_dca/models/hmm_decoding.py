"""What a hidden Markov model does with sequences once it has parameters: score, decode, predict, sample."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from sklearn.exceptions import NotFittedError

from dask_dca.engine.decoding import Decoder
from dask_dca.engine.emissions import Emission
from dask_dca.engine.threads import one_blas_thread
from dask_dca.errors import InvalidParameterError
from dask_dca.kernels.chains import Markov, stationary_distribution
from dask_dca.kernels.gaussian import prepare_gaussians
from dask_dca.models.hmm_parameters import (
    check_chain,
    check_covariances,
    count_parameters,
    whole_covariances,
)
from dask_dca.models.parameters import check_integer, check_option, draw_seed
from dask_dca.models.sequences import SequenceModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]

__all__ = ["HiddenMarkovDecoding"]

_PARAMETERS: Final = ("startprob_", "transmat_", "means_", "covariances_")
_SCANNED: Final = 2**17  # frames up to which sequences are scanned: exact, and fast enough


class HiddenMarkovDecoding(SequenceModel):
    """
    Base of hidden Markov models; not for direct use.

    Everything here needs the four parameters only, which may also be set by hand.
    """

    covariance_type: str
    algorithm: str
    recursion: str
    startprob_: Floats
    transmat_: Floats
    means_: Floats
    covariances_: Floats
    log_likelihoods_: Floats
    converged_: bool
    n_iter_: int

    def score(self, X: Any, lengths: Any = None) -> float:
        """
        Compute the log likelihood.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Frames, as for `fit`.
        lengths : array-like of int, shape (m,), optional
            Frames of each sequence; one sequence if None.

        Returns
        -------
        float
            Log likelihood of all sequences together.
        """
        rows = self._frames(X)
        return self._decoder(rows, lengths).log_likelihood()

    def score_samples(self, X: Any, lengths: Any = None) -> tuple[float, Any]:
        """
        Compute the log likelihood, and the probabilities of the states.

        Parameters
        ----------
        X, lengths : array-like
            As for `score`.

        Returns
        -------
        log_probability : float
            Log likelihood of all sequences together.
        posteriors : ndarray or dask.array.Array of shape (n, k)
            Probabilities of the states; lazy for chunked input.
        """
        rows = self._frames(X)
        decoder = self._decoder(rows, lengths)
        return decoder.log_likelihood(), decoder.posteriors(rows.output_dtype)

    def predict_proba(self, X: Any, lengths: Any = None) -> Any:
        """
        Compute the probabilities of the states, given all frames of each sequence.

        Parameters
        ----------
        X, lengths : array-like
            As for `score`.

        Returns
        -------
        ndarray or dask.array.Array of shape (n, k)
            Rows that sum to one; lazy for chunked input.
        """
        rows = self._frames(X)
        return self._decoder(rows, lengths).posteriors(rows.output_dtype)

    def predict(self, X: Any, lengths: Any = None) -> Any:
        """
        Find the state of each frame.

        Parameters
        ----------
        X, lengths : array-like
            As for `score`.

        Returns
        -------
        ndarray or dask.array.Array of int64, shape (n,)
            By Viterbi's algorithm, or the most likely state of each frame by itself if `algorithm` is "map"; lazy
            for chunked input.
        """
        if check_option("algorithm", self.algorithm, ("viterbi", "map")) == "map":
            return self.predict_proba(X, lengths).argmax(axis=1)
        return self._decoder(self._frames(X), lengths).best_path(lazy=True)[1]

    def decode(self, X: Any, lengths: Any = None, algorithm: str | None = None) -> tuple[float, Any]:
        """
        Find the most likely states, and how likely they are.

        Parameters
        ----------
        X, lengths : array-like
            As for `score`.
        algorithm : {"viterbi", "map"}, optional
            The most likely path, or the most likely state of each frame by itself; the model's own if None.

        Returns
        -------
        log_probability : float
            Of path and frames together; with "map" the sum of the states' posterior probabilities.
        states : ndarray or dask.array.Array of int64, shape (n,)
            Lazy for chunked input, of which one pass has been made.
        """
        if check_option("algorithm", algorithm or self.algorithm, ("viterbi", "map")) == "map":
            total = self._decoder(self._frames(X), lengths).posterior_sum()
            return total, self.predict_proba(X, lengths).argmax(axis=1)
        return self._decoder(self._frames(X), lengths).best_path(lazy=False)

    @one_blas_thread()
    def sample(self, n_samples: int = 1, random_state: Any = None, currstate: int | None = None) -> Any:
        """
        Draw a sequence.

        Parameters
        ----------
        n_samples : int, default 1
            Number of frames.
        random_state : int, Generator, RandomState or None
            Seed; the model's own if None.
        currstate : int, optional
            State of the first frame; drawn from the start probabilities if None.

        Returns
        -------
        X : ndarray of float64, shape (n_samples, p)
            The frames.
        states : ndarray of int64, shape (n_samples,)
            Their states.
        """
        markov = self._chain()
        count = check_integer("n_samples", n_samples, 1)
        rng = np.random.default_rng(draw_seed(self.random_state if random_state is None else random_state))
        k, p = self.means_.shape
        draws, cumulated = rng.random(count), markov.transmat.cumsum(axis=1)
        states = np.empty(count, dtype=np.int64)
        first = np.searchsorted(markov.startprob.cumsum(), draws[0], side="right")
        states[0] = min(int(first), k - 1) if currstate is None else currstate
        for t in range(1, count):
            states[t] = min(int(np.searchsorted(cumulated[states[t - 1]], draws[t], side="right")), k - 1)
        roots = np.linalg.cholesky(self.covars_)
        return self.means_[states] + np.einsum("nij,nj->ni", roots[states], rng.standard_normal((count, p))), states

    def aic(self, X: Any, lengths: Any = None) -> float:
        """
        Compute Akaike's information criterion.

        Parameters
        ----------
        X, lengths : array-like
            As for `score`.

        Returns
        -------
        float
            The lower the better.
        """
        return -2.0 * self.score(X, lengths) + 2.0 * self._n_parameters()

    def bic(self, X: Any, lengths: Any = None) -> float:
        """
        Compute the Bayesian information criterion.

        Parameters
        ----------
        X, lengths : array-like
            As for `score`.

        Returns
        -------
        float
            The lower the better.
        """
        rows = self._frames(X)
        return -2.0 * self.score(X, lengths) + float(np.log(rows.n_rows)) * self._n_parameters()

    @one_blas_thread()
    def get_stationary_distribution(self) -> Floats:
        """
        Return how often the states are visited in the long run.

        Returns
        -------
        ndarray of float64, shape (k,)
            Probabilities.
        """
        return stationary_distribution(self._chain().transmat)

    @property
    def covars_(self) -> Floats:  # numpydoc ignore=RT01
        """Covariances as one matrix for each state (k, p, p); to be set in the shape of their type."""
        covariances = np.asarray(self.covariances_, dtype=np.float64)
        return whole_covariances(covariances, self._form, *self._shape_of_means())

    @covars_.setter
    def covars_(self, values: Any) -> None:  # numpydoc ignore=GL08
        self.covariances_ = np.array(values, dtype=np.float64)

    @property
    def monitor_(self) -> SimpleNamespace:  # numpydoc ignore=RT01
        """How the passes went, as hmmlearn says it: `history` of log likelihoods a frame, `iter`, `converged`."""
        return SimpleNamespace(history=self.log_likelihoods_.tolist(), iter=self.n_iter_, converged=self.converged_)

    @property
    def n_features(self) -> int:  # numpydoc ignore=RT01
        """Number of features, as hmmlearn calls it."""
        return self._shape_of_means()[1]

    @property
    def _form(self) -> str:
        """Form of the covariances: what "auto" came to, else what was asked for."""
        return getattr(self, "covariance_type_", self.covariance_type)

    def _n_parameters(self) -> int:
        return count_parameters(self._form, *self._shape_of_means())

    def _frames(self, X: Any) -> Rows:
        """Take frames in, for a model that may have been made by hand."""
        self._chain()
        if not hasattr(self, "n_features_in_"):
            self.n_features_in_ = self.means_.shape[1]
        return self._rows(X, reset=False)

    def _chain(self) -> Markov:
        """The checked Markov chain."""
        missing = [name for name in _PARAMETERS if not hasattr(self, name)]
        if missing:
            msg = f"This {type(self).__name__} instance is not fitted yet; call fit first, or set {', '.join(missing)}"
            raise NotFittedError(msg)
        for name in _PARAMETERS:  # lists too, as hmmlearn takes them
            setattr(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        k, p = self._shape_of_means()
        check_covariances(self.covariances_, self._form, k, p)
        return Markov(*check_chain(self.startprob_, self.transmat_, k))

    def _shape_of_means(self) -> tuple[int, int]:
        shape = np.shape(self.means_)
        if len(shape) != 2:
            msg = f"means_ must be a matrix, a row for each state; received an array of shape {shape}"
            raise InvalidParameterError(msg)
        return shape

    @one_blas_thread()
    def _decoder(self, rows: Rows, lengths: Any) -> Decoder:
        markov, centre = self._chain(), np.asarray(self.means_, dtype=np.float64).mean(axis=0)
        emission = Emission(prepare_gaussians(self.means_, self.covariances_, self._form, centre))
        rule = check_option("recursion", self.recursion, ("auto", "segments", "scan"))
        burn_in: int = getattr(self, "burn_in_", 0)
        if rule == "scan" or (rule == "auto" and rows.n_rows <= _SCANNED):
            burn_in = 0
        elif rule == "segments" and not burn_in:
            msg = "recursion='segments' needs a chain that forgets within 128 frames; use recursion='scan' or 'auto'"
            raise InvalidParameterError(msg)
        return Decoder(rows, self._edges(rows, lengths), emission, markov, burn_in, self._run())
