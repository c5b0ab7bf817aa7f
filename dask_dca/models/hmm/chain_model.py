"""Base class of hidden Markov models: scores, states, paths and information criteria, for any emissions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from dask_dca.anchoring.parameters import check_integer, check_option, draw_seed
from dask_dca.engine.passes import Run
from dask_dca.engine.process import one_blas_thread
from dask_dca.errors import InvalidParameterError, StartWarning, warn
from dask_dca.geometry.arrays import Floats
from dask_dca.models.describe import passes_of
from dask_dca.models.em import InitMixin, Refined, check_chain, check_letters, read_init
from dask_dca.models.hmm.decoding import Decoder
from dask_dca.models.hmm.recursions import Markov, filter_next, predict_states, stationary_distribution
from dask_dca.models.sequences import by_groups, check_steps, check_vector
from dask_dca.models.stream import SequenceStream

_MAX_SCANNED_FRAMES: Final = 2**17  # maximum number of frames for which recursion="auto" scans


class ChainModel(InitMixin, SequenceStream):
    """Base of hidden Markov models. Its methods only need the parameters, which may also be set by hand."""

    _parameters: ClassVar[tuple[str, ...]] = ("startprob_", "transmat_")  # followed by those of the emissions
    _letters: ClassVar[dict[str, str]]  # letters of `params` and `init_params`, with the attributes that they stand for
    _told: ClassVar[tuple[str, ...]] = ("n_iter", "converged", "log_likelihoods", "start_scores", "transmat")
    _words: ClassVar[dict[str, str]]  # keys of a dict `init`, with the attributes that they stand for

    init: Any
    params: str
    init_params: str
    algorithm: str
    recursion: str
    startprob_: Floats
    transmat_: Floats
    log_likelihoods_: Floats
    start_scores_: Floats
    converged_: bool
    n_iter_: int

    def score(self, X: Any, y: Any = None, *, lengths: Any = None, groups: Any = None) -> float:
        """
        Compute the log likelihood.

        Parameters
        ----------
        X, y, lengths, groups : object
            As `fit` takes them.

        Returns
        -------
        float
            Log likelihood of all sequences together; minus infinity if a probability of zero rules them out.
        """
        return self._decoder(X, lengths, groups, y).log_likelihood()

    def score_samples(self, X: Any, lengths: Any = None, *, groups: Any = None) -> tuple[float, Any]:
        """
        Compute the log likelihood, and the probabilities of the states.

        Parameters
        ----------
        X, lengths, groups : array-like
            As `fit` takes them.

        Returns
        -------
        log_probability : float
            Log likelihood of all sequences together.
        posteriors : ndarray or dask.array.Array of shape (n, k)
            Probabilities of the states; lazy for chunked input.
        """
        decoder = self._decoder(X, lengths, groups)
        return decoder.log_likelihood(), decoder.posteriors()

    def predict_proba(self, X: Any, lengths: Any = None, *, groups: Any = None) -> Any:
        """
        Compute the probabilities of the states, given all frames of each sequence.

        Parameters
        ----------
        X, lengths, groups : array-like
            As `fit` takes them.

        Returns
        -------
        ndarray or dask.array.Array of shape (n, k)
            Rows that sum to one; lazy for chunked input.
        """
        return self._decoder(X, lengths, groups).posteriors()

    def filter(self, X: Any, lengths: Any = None, *, groups: Any = None) -> Any:
        """
        Compute the probabilities of the states, given the frames of each sequence up to each frame.

        Parameters
        ----------
        X, lengths, groups : array-like
            As `fit` takes them.

        Returns
        -------
        ndarray or dask.array.Array of shape (n, k)
            Rows that sum to one, which do not depend on later frames; lazy for chunked input.
        """
        return self._decoder(X, lengths, groups).filtered()

    @one_blas_thread()
    def filter_update(self, filtered_state: Any = None, observation: Any = None) -> Floats:
        """
        Update the filtered state by one more frame: `filter` frame by frame.

        Parameters
        ----------
        filtered_state : array-like of shape (k,), optional
            Probabilities of the states at the frame before, from `filter` or the last call; None where a sequence
            begins.
        observation : array-like of shape (p,), optional
            The frame; None if it is missing. Single entries may be missing where `filter` takes them.

        Returns
        -------
        ndarray of float64, shape (k,)
            Probabilities of the states at this frame.

        Raises
        ------
        DCAError
            Another number of states or features, or a frame that `filter` would not take.
        """
        markov = self._chain()
        k, p = self._check_emission()
        before = None if filtered_state is None else check_vector("filtered_state", filtered_state, k)
        if observation is None:
            return filter_next(markov, before, np.zeros(k))
        frame = check_vector("observation", observation, p, missing="missing" in vars(self))
        return filter_next(markov, before, self._emission()(frame[None])[0])

    def forecast(self, X: Any, n_steps: int = 1, lengths: Any = None, *, groups: Any = None) -> tuple[Floats, ...]:
        """
        Predict the states and the frames that follow the last sequence.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Frames, as for `fit`.
        n_steps : int, default 1
            Number of frames.
        lengths, groups : object
            As `fit` takes them.

        Returns
        -------
        probabilities : ndarray of float64, shape (n_steps, k)
            Of the states.
        means : ndarray of float64, shape (n_steps, p)
            Expected frames; for symbols their probabilities, shape (n_steps, v), without covariances.
        covariances : ndarray of float64, shape (n_steps, p, p)
            Covariances of the frames, including the spread of the states' means.

        Raises
        ------
        DCAError
            Unusable data, no positive number of steps, or covariances of more than 2,000 features.
        """
        count = check_steps(n_steps)
        last = self._decoder(X, lengths, groups).last_filtered()
        ahead = predict_states(last, self._chain().transmat, count)
        return (ahead, *self._expected(ahead))

    def predict(self, X: Any, lengths: Any = None, *, groups: Any = None) -> Any:
        """
        Find the state of each frame.

        Parameters
        ----------
        X, lengths, groups : array-like
            As `fit` takes them.

        Returns
        -------
        ndarray or dask.array.Array of int64, shape (n,)
            The most likely path, by Viterbi's algorithm, or if `algorithm` is "map" the most likely state of each
            frame; lazy for chunked input.
        """
        if check_option("algorithm", self.algorithm, ("viterbi", "map")) == "map":
            return self.predict_proba(X, lengths, groups=groups).argmax(axis=1)
        return self._decoder(X, lengths, groups).best_path(lazy=True)[1]

    def decode(
        self, X: Any, lengths: Any = None, algorithm: str | None = None, *, groups: Any = None
    ) -> tuple[float, Any]:
        """
        Find the most likely states, and their log probability.

        Parameters
        ----------
        X, lengths, groups : array-like
            As `fit` takes them.
        algorithm : {"viterbi", "map"}, optional
            The most likely path, or the most likely state of each frame; the model's parameter if None.

        Returns
        -------
        log_probability : float
            Joint log probability of path and frames; with "map" the sum of the states' posterior probabilities.
        states : ndarray or dask.array.Array of int64, shape (n,)
            The states, lazy for chunked input; one pass is made at once.
        """
        decoder = self._decoder(X, lengths, groups)
        if check_option("algorithm", algorithm or self.algorithm, ("viterbi", "map")) == "map":
            return decoder.posterior_sum(), decoder.posteriors().argmax(axis=1)
        return decoder.best_path(lazy=False)

    def aic(self, X: Any, lengths: Any = None, *, groups: Any = None) -> float:
        """
        Compute Akaike's information criterion.

        Parameters
        ----------
        X, lengths, groups : array-like
            As `fit` takes them.

        Returns
        -------
        float
            The lower the better.
        """
        return -2.0 * self.score(X, lengths=lengths, groups=groups) + 2.0 * self._n_parameters()

    def bic(self, X: Any, lengths: Any = None, *, groups: Any = None) -> float:
        """
        Compute the Bayesian information criterion.

        Parameters
        ----------
        X, lengths, groups : array-like
            As `fit` takes them.

        Returns
        -------
        float
            The lower the better.
        """
        decoder = self._decoder(X, lengths, groups)
        return -2.0 * decoder.log_likelihood() + float(np.log(decoder.rows.n_rows)) * self._n_parameters()

    @one_blas_thread()
    def get_stationary_distribution(self) -> Floats:
        """
        Compute the stationary distribution of the states.

        Returns
        -------
        ndarray of float64, shape (k,)
            Probabilities.
        """
        return stationary_distribution(self._chain().transmat)

    @property
    def monitor_(self) -> SimpleNamespace:  # numpydoc ignore=RT01
        """Convergence as hmmlearn reports it: `history` of the log likelihoods of all frames, `iter`, `converged`."""
        history = (self.log_likelihoods_ * self._n_frames()).tolist()
        return SimpleNamespace(history=history, iter=self.n_iter_, converged=self.converged_)

    def _n_frames(self) -> int:
        """Number of frames that the model was fitted on."""
        raise NotImplementedError

    def _check_parameters(self, rows: Any) -> None:
        super()._check_parameters(rows)
        self._check_letters()

    def _check_letters(self) -> None:
        for name in ("params", "init_params"):
            check_letters(name, getattr(self, name), "".join(self._letters))

    def _keep_history(self, refined: Refined[Any, Any], start_scores: list[float], n_sequences: int, run: Run) -> None:
        """Store the history of a fit."""
        self.n_sequences_, self.n_passes_ = n_sequences, run.n_passes
        self.__dict__.update(refined.history, start_scores_=np.array(start_scores))

    def _history(self) -> str:
        """Describe the convergence of the fit in a line of text."""
        ends = "converged" if self.converged_ else "not converged: a larger max_iter gains a little"
        return f"log likelihood {self.log_likelihoods_[-1]:.6g} per frame after {passes_of(self)} ({ends})"

    @property
    def _starting_names(self) -> list[str]:
        """Attributes from which a fit starts, by `init_params`."""
        learnt: Any = self.init_params  # other types are rejected by `_check_letters`
        return [name for letter, name in self._letters.items() if isinstance(learnt, str) and letter not in learnt]

    def _given(self) -> dict[str, Floats]:
        """Parameters to start from, by the names of attributes; empty for a start from anchors."""
        self._check_letters()
        start, kept = read_init(self, self._words), self._starting_names
        if self.warm_start and start:
            return start
        lost = [name for name in self._parameters if hasattr(self, name) and (name not in kept or name in start)]
        if lost:
            letters = "".join(letter for letter, name in self._letters.items() if name not in (*kept, *lost))
            msg = (
                f"{', '.join(lost)} was set by hand, and is overwritten by the fit; to start from it, pass "
                f"init_params={letters!r}, the letters of what the fit begins with itself"
            )
            warn(msg, StartWarning)
        for name in kept:
            if name not in start and not hasattr(self, name):
                msg = f"init_params={self.init_params!r} starts from {name}, which is not set; set it, or pass init="
                raise InvalidParameterError(msg)
        return {name: np.array(getattr(self, name), dtype=np.float64) for name in kept if name not in start} | start

    @one_blas_thread()
    def sample(
        self, n_samples: int = 1, random_state: Any = None, currstate: int | None = None
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
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
            The frames; symbols are integers, in one column.
        states : ndarray of int64, shape (n_samples,)
            Their states.

        Raises
        ------
        InvalidParameterError
            No frames, or a state that the model does not have.
        """
        count = check_integer("n_samples", n_samples, 1)
        if currstate is not None and check_integer("currstate", currstate, 0) >= (k := len(self._chain().startprob)):
            msg = f"currstate must be one of the {k} states, 0 to {k - 1}; received {currstate!r}"
            raise InvalidParameterError(msg)
        rng = np.random.default_rng(draw_seed(self.random_state if random_state is None else random_state))
        states = self._draw_states(count, rng, currstate)
        return self._draw_frames(states, rng), states

    def _draw_states(self, n_frames: int, rng: np.random.Generator, first: int | None) -> NDArray[np.int64]:
        """Draw a path of states."""
        markov = self._chain()
        k, draws, cumulated = len(markov.startprob), rng.random(n_frames), markov.transmat.cumsum(axis=1)
        states = np.empty(n_frames, dtype=np.int64)
        drawn = int(np.searchsorted(markov.startprob.cumsum(), draws[0], side="right"))
        states[0] = min(drawn, k - 1) if first is None else first
        for t in range(1, n_frames):
            states[t] = min(int(np.searchsorted(cumulated[states[t - 1]], draws[t], side="right")), k - 1)
        return states

    def _draw_frames(self, states: NDArray[np.int64], rng: np.random.Generator) -> NDArray[Any]:
        """Draw a frame in each of these states."""
        raise NotImplementedError

    def _n_parameters(self) -> int:
        """Number of free parameters."""
        raise NotImplementedError

    def _emission(self) -> Any:
        """Callable that evaluates the log densities (n, k) of a tile of frames (n, p) in the states."""
        raise NotImplementedError

    def _expected(self, probabilities: Floats) -> tuple[Floats, ...]:
        """Expected frames, given probabilities (n, k) of their states."""
        raise NotImplementedError

    def _check_emission(self) -> tuple[int, int]:
        """Check the parameters of the emissions, and return the numbers of states and of features."""
        raise NotImplementedError

    def _chain(self) -> Markov:
        """Check all parameters, and return the Markov chain."""
        missing = [name for name in self._parameters if not hasattr(self, name)]
        if missing:
            msg = f"This {type(self).__name__} instance is not fitted yet; call fit first, or set {', '.join(missing)}"
            raise NotFittedError(msg)
        for name in self._parameters:  # may be lists, as in hmmlearn
            setattr(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        k, _ = self._check_emission()
        return Markov(*check_chain(self.startprob_, self.transmat_, k))

    @one_blas_thread()
    def _decoder(self, X: Any, lengths: Any, groups: Any, y: Any = None) -> Decoder:
        """Prepare sequences for decoding, by a model whose parameters may have been set by hand."""
        X, lengths = by_groups(X, lengths, groups)
        markov = self._chain()
        if not hasattr(self, "n_features_in_"):
            self.n_features_in_ = self._check_emission()[1]
        rows = self._rows(X, reset=False)
        rule = check_option("recursion", self.recursion, ("auto", "segments", "scan"))
        burn_in: int = getattr(self, "burn_in_", 0)
        if rule == "scan" or (rule == "auto" and rows.n_rows <= _MAX_SCANNED_FRAMES):
            burn_in = 0
        elif rule == "segments" and not burn_in:
            msg = "recursion='segments' needs a model that forgets within 128 frames; use recursion='scan' or 'auto'"
            raise InvalidParameterError(msg)
        edges = self._edges(rows, self._lengths(rows, y, lengths))
        return Decoder(rows, edges, self._emission(), markov, burn_in, self._run())
