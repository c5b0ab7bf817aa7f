"""Kalman filter: a linear dynamical system whose state coordinates are amounts of k anchor frames."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dask_dca.anchoring.parameters import check_count, check_integer, check_number, check_option, draw_seed
from dask_dca.engine.passes import Run
from dask_dca.engine.process import one_blas_thread
from dask_dca.engine.rows import Rows
from dask_dca.errors import InvalidParameterError
from dask_dca.geometry.arrays import Floats
from dask_dca.models.attributes import KALMAN
from dask_dca.models.base import whole_fit
from dask_dca.models.describe import anchor_facts
from dask_dca.models.em import InitMixin, Refined, read_init
from dask_dca.models.foreign import advised
from dask_dca.models.kalman.filter import next_state
from dask_dca.models.kalman.fit import KalmanFit, KalmanSettings, fit_kalman
from dask_dca.models.kalman.given import (
    SUM_NAMES,
    as_incomplete_sums,
    check_learnt,
    complete_start,
    count_missing,
    filter_e_step,
    filter_m_step,
    fit_from_system,
    named_sums,
)
from dask_dca.models.kalman.paper import fit_paper_system
from dask_dca.models.kalman.passes import SystemSums
from dask_dca.models.kalman.pieces import (
    PreparedFilter,
    forecasts,
    predictions,
    prepare_filter,
    state_estimates,
    total_log_likelihood,
)
from dask_dca.models.kalman.system import PARAMETERS, LinearSystem, checked_system, sample_system
from dask_dca.models.sequences import by_groups, check_steps, check_vector
from dask_dca.models.stream import SequenceStream

_TYPES = ("auto", "full", "diag")


CORRELATED = (
    "The noises of states and frames seem to be correlated, which a model of k states cannot represent: "
    "try n_dim_state={}, the number of states plus channels."
)


def noises_look_correlated(model: Any) -> bool:
    """Whether correlated noises raise the log likelihood of the sample by more than their number of parameters."""
    k = model.n_dim_state_
    return bool(model.correlated_noise_ > 2 * k * min(k, model.n_features_in_))


class KalmanFilter(InitMixin, SequenceStream):
    """
    Kalman filter and smoother, fitted in a few passes over sequences of any length.

    Parameters
    ----------
    n_dim_state : int or "auto", default "auto"
        Number of state dimensions k; "auto" chooses it by canonical correlations. Few frames may allow fewer, with a
        warning.
    covariance_type : {"auto", "full", "diag"}, default "auto"
        Form of R. "full" includes correlations, shrunk by their estimated sampling noise; frames must be complete or
        missing as a whole. "auto" is full up to 1,024 features, and diagonal above or if a frame has some entries only.
    max_iter : int, default 2
        Maximum number of M-steps, each with a pass over all frames and EM steps on a sample of at most 20,480 frames; 0
        keeps the start.
    init : KalmanFilter or dict, optional
        Start of the fit instead of anchors: a filter, fitted or of known parameters, or a dict of parameters by the
        names of `from_parameters`. The state space of the start is kept, and the fit runs plain EM steps. If both
        matrices are given, other parameters default to identities and zeros, as in pykalman; else to an anchored fit.
    warm_start : bool, default False
        Start from the result of the last fit of this model, as if it were `init`.
    params : str or list of str, default "all"
        Parameters that are learnt, by the names of `from_parameters` (pykalman's `em_vars`), or "all"; others are kept.
    tol : float, default 1e-5
        The fit ends when a step raises the mean log likelihood per frame by less.
    method : {"robust", "paper"}, default "robust"
        The default, which was chosen by benchmarks, or the paper's bilateral separability; see Notes.
    n_subproblems : int or "auto", default "auto"
        Number of random directions in state space; by default 5 k ln(k + 1).
    ensemble : str, default "auto"
        Distribution of the planes of the paper's method: "gaussian" ("auto"), "sparse", "unit" or "data".
    random_state : int, Generator, RandomState or None, default 0
        Seed of the directions. An integer gives the same model on every fit; None draws a new seed each time.
    retries : int, default 3
        Number of times that a failing task is repeated on a cluster.
    checkpoint : str, optional
        Path or URL where finished passes over chunked data are saved: a fit that was killed resumes, when repeated with
        the same data and parameters, at the unfinished pass, and gives bit for bit the same result.
    verbose : bool, default False
        Show the passes' progress on standard error.

    Attributes
    ----------
    transition_matrices_ : ndarray of float64, shape (k, k)
        T, the paper's transition.
    observation_matrices_ : ndarray of float64, shape (p, k)
        O. Column j plus the offsets is frame `anchor_indices_[j]` without its noise.
    transition_covariance_ : ndarray of float64, shape (k, k)
        Q, covariance of the state's noise.
    observation_covariance_ : ndarray of float64, shape (p, p) or (p,)
        R, covariance of the frames' noise, or its diagonal if it is diagonal.
    observation_offsets_ : ndarray of float64, shape (p,)
        Expected frame at state zero.
    initial_state_mean_, initial_state_covariance_ : ndarray of float64, shapes (k,) and (k, k)
        Mean and covariance of the first state of a sequence.
    anchor_indices_ : ndarray of int64, shape (k,)
        Frames whose smoothed states are the unit vectors; -1 for an axis that is not the state of a frame. A fit from
        given parameters has no anchors and no votes.
    votes_, vote_share_ : ndarray of shape (k,)
        Number and share of the directions on which each anchor is extreme.
    vote_confidence_ : ndarray of float64, shape (k, 2)
        Wilson's 95 % bounds on that share.
    n_subproblems_ : int
        Number of directions.
    n_dim_state_ : int
        Number of state dimensions.
    canonical_correlations_ : ndarray of float64, shape (m,)
        Canonical correlations of past and future, decreasing: how well each state dimension predicts the future.
    correlated_noise_ : float
        Gain of the sample's log likelihood, in nats, if the noises of states and frames may be correlated. Above
        2 k min(k, p) they probably are, which a larger n_dim_state, k + p, can represent. NaN if entries are missing,
        and for walks whose predictor never forgets its initial state.
    log_likelihoods_ : ndarray of float64, shape (m + 1,)
        Mean log likelihood per frame, before each of m steps and at the end.
    n_iter_ : int
        Number of steps.
    converged_ : bool
        Whether the last step raised the mean log likelihood by less than `tol`.
    explained_variance_ratio_ : float
        Share of the variance that is predicted one step ahead, averaged over channels.
    n_missing_entries_ : int
        Number of missing entries.
    n_samples_seen_ : int
        Number of frames that the model was fitted to, in all batches of `partial_fit`.
    first_every_, first_pairs_, first_before_, first_after_, first_starts_, first_start_means_ : ndarray
        State of `partial_fit`: sums over states of the fit, in its units (`stream_centre_`, `stream_unit_`).
    first_cross_, first_second_, first_sequences_, first_seen_, first_tallies_ : ndarray
        Sums over states and channels; the number of sequences; sums by channel if entries are missing; counts.
    later_every_, later_pairs_, later_before_, later_after_, later_starts_, later_start_means_ : ndarray
        The same for later batches.
    later_cross_, later_second_, later_sequences_, later_seen_ : ndarray
        The same for later batches.
    stream_centre_, stream_unit_ : ndarray of float64, shape (p,)
        Centre and units of channels in all sums.
    n_features_in_, n_sequences_, n_passes_ : int
        Number of features p, of sequences, and of passes of the fit over all rows (without samples).
    feature_names_in_ : ndarray of str, shape (p,)
        Names of the features, if the input has them.

    See Also
    --------
    dask_dca.GaussianHMM : Discrete states.

    Notes
    -----
    s_{t+1} = T s_t + w_t, x_t = mu + O s_t + v_t with Gaussian noise w, v (the paper's section on the Kalman filter).
    The start is canonical variate analysis in the directions that neighbouring frames predict, at the window length of
    greatest likelihood. EM runs the smoother on pieces of sequences in parallel; each pass is followed by EM steps on
    the sample, whose sums are corrected by those of all frames.

    `method="paper"` is bilateral separability: the columns of O are frames x2, those of O T frames x3, found as
    anchors that cover the moments X2^T X3 and X2^T Diag(X1 eta) X3 and their transposes. Rows of X2^T X3 are
    combinations of the columns of O T, so their candidates are the x3, and those of the transpose are the x2; the text
    of the paper swaps the two. Columns are ordered and scaled so that E[h (x) h] is symmetric and positive; T may be
    unstable. Expect poor predictions: the third moments of Gaussian noise vanish, and single frames carry all of their
    noise.

    Examples
    --------
    >>> import dask_dca as dca
    >>> turn = 0.98 * np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    >>> truth = dca.KalmanFilter.from_parameters(turn, np.eye(4, 2), 0.1 * np.eye(2), 0.2 * np.eye(4))
    >>> states, X = truth.sample(2000)
    >>> model = dca.KalmanFilter(2).fit(X)
    >>> np.abs(np.linalg.eigvals(model.transition_matrices_)).round(2).tolist()
    [0.98, 0.98]
    >>> means, covariances = model.smooth(X)
    >>> means.shape, covariances.shape
    ((2000, 2), (2000, 2, 2))
    """

    _count: ClassVar[str] = "n_dim_state"
    _per_row: ClassVar[str] = "predict"
    _part: ClassVar[str] = "state"
    _own_directions: ClassVar[bool] = True
    _fitted: ClassVar = KALMAN
    _mark: ClassVar = "transition_matrices_"
    _sums: ClassVar = SUM_NAMES
    _told: ClassVar = ("n_dim_state", "n_subproblems", "log_likelihoods", "n_iter", "converged",
                       "canonical_correlations", "correlated_noise")  # fmt: skip
    _tallies: ClassVar = (*SequenceStream._tallies, "n_missing_entries_")
    _sizes: ClassVar = {"features": "n_features_in_", "parts": "n_dim_state_", "next": "n_dim_state_"}

    transition_matrices_: Floats
    observation_matrices_: Floats
    transition_covariance_: Floats
    observation_covariance_: Floats
    initial_state_mean_: Floats
    initial_state_covariance_: Floats
    observation_offsets_: Floats

    def __init__(
        self,
        n_dim_state: int | str = "auto",
        *,
        covariance_type: str = "auto",
        max_iter: int = 2,
        init: Any = None,
        warm_start: bool = False,
        params: Any = "all",
        tol: float = 1e-5,
        method: str = "robust",
        n_subproblems: int | str = "auto",
        ensemble: str = "auto",
        random_state: Any = 0,
        retries: int = 3,
        checkpoint: str | None = None,
        verbose: bool = False,
    ) -> None:
        self._take(locals())

    @classmethod
    @advised
    def from_parameters(
        cls,
        transition_matrices: ArrayLike,
        observation_matrices: ArrayLike,
        transition_covariance: ArrayLike | None = None,
        observation_covariance: ArrayLike | None = None,
        initial_state_mean: ArrayLike | None = None,
        initial_state_covariance: ArrayLike | None = None,
        observation_offsets: ArrayLike | None = None,
    ) -> Self:
        """
        Make a filter from known parameters, without a fit.

        Parameters
        ----------
        transition_matrices : array_like, shape (k, k)
            T.
        observation_matrices : array_like, shape (p, k)
            O.
        transition_covariance : array_like, shape (k, k), optional
            Q; may be singular; the identity if None, as in pykalman.
        observation_covariance : array_like, shape (p, p) or (p,), optional
            R, or its diagonal; may be singular; the identity if None.
        initial_state_mean : array_like, shape (k,), optional
            Mean of the first state of a sequence; zeros if None.
        initial_state_covariance : array_like, shape (k, k), optional
            Its covariance; the identity if None.
        observation_offsets : array_like, shape (p,), optional
            Expected frame at state zero; zeros if None.

        Returns
        -------
        KalmanFilter
            A filter that is ready for `filter`, `smooth`, `predict`, `loglikelihood` and `sample`.

        Raises
        ------
        InvalidParameterError
            Parameters of inconsistent shapes, or invalid ones.
        """
        values = (
            transition_matrices,
            observation_matrices,
            transition_covariance,
            observation_covariance,
            initial_state_mean,
            initial_state_covariance,
            observation_offsets,
        )
        given = {name: value for name, value in zip(PARAMETERS, values, strict=True) if value is not None}
        system = checked_system(complete_start(given, len(np.atleast_2d(observation_matrices)), "diag"))
        model = cls(system.n_dim_state)
        model.n_features_in_ = system.n_dim_obs
        model._keep(system, 1, 0)
        return model

    @whole_fit
    def fit(
        self, X: Any, y: Any = None, *, lengths: Any = None, groups: Any = None, resume: Self | None = None
    ) -> Self:
        """
        Learn the system.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Frames in the order of time: NumPy, Dask array or DataFrame, xarray, zarr array or its path. NaN or masked
            where an entry is missing.
        y : None
            Ignored; lengths passed by position, as in hmmlearn, are accepted with a warning.
        lengths : array-like of int, shape (m,), optional
            Lengths of the sequences, which are concatenated in X; one sequence if None.
        resume : KalmanFilter, optional
            A model of the first rows of X, to which whole sequences have been appended since: only the blocks after
            these rows are read. The result is that of `partial_fit` with the new sequences.
        groups : array-like of shape (n,) or str, optional
            Alternative to lengths: the id of each frame's sequence; or the name of a column or index level of a
            DataFrame, or of a coordinate of an xarray.DataArray, that holds the ids.

        Returns
        -------
        KalmanFilter
            The fitted model.

        Raises
        ------
        DCAError
            Infinite or empty data, a channel without an entry, lengths that do not add up, unusable parameters.
        """
        X, lengths = by_groups(X, lengths, groups)
        if resume is not None:
            return self._resumed(resume, X, y, lengths)
        return self._learn(X, lengths, y)

    def _learn(self, X: Any, lengths: Any, y: Any) -> Self:
        """Fit from given parameters, if there are any, else from anchors."""
        rows = self._rows(X, reset=True)
        edges = self._edges_to_fit(rows, y, lengths)
        settings = self._settings(rows)
        given, learnt = read_init(self, {name: f"{name}_" for name in PARAMETERS}), check_learnt(self.params)
        if given or len(learnt) < len(PARAMETERS):
            if self.method == "paper":
                msg = "method='paper' starts from the paper's anchors and learns all; leave init and params out"
                raise InvalidParameterError(msg)
            run = self._run(rows)
            self.canonical_correlations_, self.correlated_noise_ = np.zeros(0), float("nan")
            self._keep_refined(fit_from_system(rows, edges, given, learnt, settings, run), edges, run)
            return self
        if self.method == "paper":
            return self._fit_paper(rows, edges, settings.n_dim_state)
        run = self._run(rows)
        self._keep_fitted(fit_kalman(rows, edges, settings, run), edges, run)
        return self

    @whole_fit
    def em(
        self, X: Any, y: Any = None, n_iter: int = 10, em_vars: Any = None, *, lengths: Any = None, groups: Any = None
    ) -> Self:
        """
        Continue EM from the present parameters, as in pykalman: a fit with the filter itself as `init`.

        Parameters
        ----------
        X, y, lengths, groups : object
            As `fit` takes them.
        n_iter : int, default 10
            Maximum number of steps, in place of `max_iter`; `tol` may end the fit earlier.
        em_vars : str or list of str, optional
            Parameters that are learnt, in place of `params`; `params` if None.

        Returns
        -------
        KalmanFilter
            The filter itself. A filter without parameters starts as `fit` does.

        Raises
        ------
        DCAError
            As for `fit`; the filter is then unchanged.

        Examples
        --------
        >>> import dask_dca as dca
        >>> walk = dca.KalmanFilter.from_parameters([[1.0]], [[1.0]], [[1.0]], [[1.0]])
        >>> X = np.random.default_rng(0).standard_normal((300, 1)).cumsum(axis=0)
        >>> walk = walk.em(X, n_iter=20, em_vars=["transition_covariance", "observation_covariance"])
        >>> bool(walk.transition_covariance_ > 5 * walk.observation_covariance_)
        True
        """
        given = self.get_params(deep=False)
        learnt = self.params if em_vars is None else em_vars
        self.set_params(max_iter=check_integer("n_iter", n_iter, 0), params=learnt, warm_start=True)
        self._learn(*by_groups(X, lengths, groups), y)
        return self.set_params(**given)

    def filter(self, X: Any, lengths: Any = None, *, groups: Any = None) -> tuple[Any, Any]:
        """
        Estimate the state of each frame from the frames up to it.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Frames; NaN or masked where an entry is missing, whole frames too.
        lengths, groups : object
            As `fit` takes them.

        Returns
        -------
        means : ndarray or dask.array.Array of shape (n, k)
            Means of the states; lazy for chunked input.
        covariances : ndarray or dask.array.Array of shape (n, k, k)
            Their covariances, exact for every frame.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed).
        """
        return state_estimates(*self._tracked(X, lengths, groups), smooth=False)

    def smooth(self, X: Any, lengths: Any = None, *, groups: Any = None) -> tuple[Any, Any]:
        """
        Estimate the state of each frame from all frames of its sequence.

        Parameters
        ----------
        X, lengths, groups : object
            As `filter` takes them.

        Returns
        -------
        means : ndarray or dask.array.Array of shape (n, k)
            Means of the states; lazy for chunked input.
        covariances : ndarray or dask.array.Array of shape (n, k, k)
            Their covariances, exact for every frame.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed).
        """
        return state_estimates(*self._tracked(X, lengths, groups), smooth=True)

    @one_blas_thread()
    @advised
    def filter_update(
        self, filtered_state_mean: Any = None, filtered_state_covariance: Any = None, observation: Any = None
    ) -> tuple[Floats, Floats]:
        """
        Update the filtered state by one more frame: `filter` frame by frame.

        Parameters
        ----------
        filtered_state_mean : array-like of shape (k,), optional
            Mean of the state at the frame before, from `filter` or the last call; None where a sequence begins.
        filtered_state_covariance : array-like of shape (k, k), optional
            Its covariance.
        observation : array-like of shape (p,), optional
            The frame; NaN where an entry is missing, None if all are.

        Returns
        -------
        mean : ndarray of float64, shape (k,)
            Mean of the state at this frame.
        covariance : ndarray of float64, shape (k, k)
            Its covariance.

        Raises
        ------
        DCAError
            Another number of states or features, or infinite entries.

        Examples
        --------
        >>> import dask_dca as dca
        >>> model = dca.KalmanFilter.from_parameters([[0.9]], [[1.0]], [[1.0]], [[1.0]])
        >>> mean, covariance = model.filter_update(observation=[2.0])
        >>> mean, covariance = model.filter_update(mean, covariance, [1.0])
        >>> mean.round(3).tolist(), covariance.round(3).tolist()
        ([0.958], [[0.584]])
        """
        check_is_fitted(self)
        system = self._system()
        k, p, before = system.n_dim_state, system.n_dim_obs, None
        if filtered_state_mean is not None:
            spread = np.asarray(filtered_state_covariance, dtype=np.float64)
            covariance = check_vector("filtered_state_covariance", spread, k * k).reshape(k, k)
            before = check_vector("filtered_state_mean", filtered_state_mean, k), covariance
        given = np.full(p, np.nan) if observation is None else observation
        return next_state(system, before, check_vector("observation", given, p, missing=True))

    def predict(self, X: Any, n_steps: int = 1, lengths: Any = None, *, groups: Any = None) -> Any:
        """
        Predict frames some steps ahead of each frame.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Frames, as for `filter`.
        n_steps : int, default 1
            Number of steps.
        lengths, groups : object
            As `fit` takes them.

        Returns
        -------
        ndarray or dask.array.Array of shape (n, p)
            Row t is the expectation of frame t + n_steps of its sequence, given the frames up to t; the last rows are
            beyond the data. Lazy for chunked input.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed), or no positive number of steps.
        """
        steps = check_steps(n_steps)
        return predictions(*self._tracked(X, lengths, groups), steps)

    @one_blas_thread()
    def forecast(self, X: Any, n_steps: int = 1, lengths: Any = None, *, groups: Any = None) -> tuple[Floats, Floats]:
        """
        Predict the frames that follow the last sequence.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Frames, as for `filter`. Only the last blocks of chunked data are read.
        n_steps : int, default 1
            Number of frames.
        lengths, groups : object
            As `fit` takes them.

        Returns
        -------
        means : ndarray of float64, shape (n_steps, p)
            Expected frames.
        variances : ndarray of float64, shape (n_steps, p)
            Variances of the entries.

        Raises
        ------
        DCAError
            Unusable data, or no positive number of steps.
        """
        steps = check_steps(n_steps)
        return forecasts(*self._tracked(X, lengths, groups), steps, self._run())

    def score(self, X: Any, y: Any = None, *, lengths: Any = None, groups: Any = None) -> float:
        """
        Compute the log likelihood, as `loglikelihood` does; larger is better.

        Parameters
        ----------
        X, y, lengths, groups : object
            As `fit` takes them.

        Returns
        -------
        float
            Log likelihood of the observed entries of all sequences.

        Examples
        --------
        >>> import dask_dca as dca
        >>> model = dca.KalmanFilter.from_parameters([[0.9]], [[1.0]], [[1.0]], [[1.0]])
        >>> round(model.score(np.zeros((3, 1))), 2)
        -3.99
        """
        return total_log_likelihood(*self._tracked(X, lengths, groups, y), self._run())

    def loglikelihood(self, X: Any, lengths: Any = None, *, groups: Any = None) -> float:
        """
        Compute the log likelihood of all frames, in one pass.

        Parameters
        ----------
        X, lengths, groups : object
            As `filter` takes them.

        Returns
        -------
        float
            Log likelihood of the observed entries.

        Raises
        ------
        DCAError
            Unusable data.
        """
        return self.score(X, lengths=lengths, groups=groups)

    @one_blas_thread()
    def sample(
        self, n_timesteps: int = 1, random_state: Any = None, *, initial_state: ArrayLike | None = None
    ) -> tuple[Floats, Floats]:
        """
        Draw a sequence from the model.

        Parameters
        ----------
        n_timesteps : int, default 1
            Number of frames.
        random_state : int, Generator, RandomState or None, default None
            Seed of the noise; the model's own `random_state` if None.
        initial_state : array-like of shape (k,), optional
            State at the first frame; drawn if None.

        Returns
        -------
        states : ndarray of float64, shape (n_timesteps, k)
            States.
        observations : ndarray of float64, shape (n_timesteps, p)
            Frames.
        """
        check_is_fitted(self)
        seed = draw_seed(self.random_state if random_state is None else random_state)
        system = self._system()
        if initial_state is not None:
            mean = check_vector("initial_state", initial_state, system.n_dim_state)
            system = replace(system, initial_mean=mean, initial_covariance=np.zeros_like(system.initial_covariance))
        return sample_system(system, check_integer("n_timesteps", n_timesteps, 1), np.random.default_rng(seed))

    def _system(self) -> LinearSystem:
        return checked_system({name: getattr(self, f"{name}_") for name in PARAMETERS})

    def _tracked(self, X: Any, lengths: Any, groups: Any, y: Any = None) -> tuple[Rows, PreparedFilter]:
        """Open the frames, and prepare the filter for them."""
        check_is_fitted(self)
        X, lengths = by_groups(X, lengths, groups)
        rows = self._rows(X, reset=False)
        with one_blas_thread():
            return rows, prepare_filter(self._system(), rows, self._edges(rows, self._lengths(rows, y, lengths)))

    def _settings(self, rows: Any) -> KalmanSettings:
        """Check the parameters."""
        chosen, k = self._anchoring(), check_count(self.n_dim_state, rows, "n_dim_state")
        form = check_option("covariance_type", self.covariance_type, _TYPES)
        tol, steps = check_number("tol", self.tol), check_integer("max_iter", self.max_iter, 0)
        return KalmanSettings(k, form, steps, tol, chosen.n_subproblems, chosen.seed)

    def _check_parameters(self, rows: Any) -> None:
        super()._check_parameters(rows)
        check_learnt(self.params)
        self._settings(rows)

    def _fit_paper(self, rows: Rows, edges: Any, k: int | None) -> Self:
        if k is None:
            msg = "method='paper' has no rule for the number of states; pass n_dim_state, for example 4"
            raise InvalidParameterError(msg)
        run = self._run(rows)
        system, anchors = fit_paper_system(rows, edges, k, self._anchoring(), run)
        width = system.n_dim_state
        self.anchor_indices_, self.votes_ = anchors.indices[:width], anchors.votes[:width]
        self.vote_share_, self.vote_confidence_ = anchors.vote_share[:width], anchors.confidence[:width]
        self.n_subproblems_, self.n_missing_entries_ = anchors.n_subproblems, 0
        self._keep(system, len(edges) - 1, run.n_passes)
        return self

    def _keep_fitted(self, found: KalmanFit, edges: NDArray[np.int64], run: Run) -> None:
        anchors = found.anchors
        self.anchor_indices_, self.votes_ = anchors.indices, anchors.votes
        self.vote_share_, self.vote_confidence_ = anchors.votes / anchors.n_directions, anchors.bounds
        self.n_subproblems_, self.canonical_correlations_ = anchors.n_directions, found.correlations
        self.correlated_noise_ = found.correlated
        self._keep_refined(found.refined, edges, run)
        self.stream_centre_, self.stream_unit_ = found.scale.centre, found.scale.unit
        self._begin_stream(named_sums(found.sums), int(edges[-1]))

    def _keep_refined(self, refined: Refined[LinearSystem, SystemSums], edges: Any, run: Run) -> None:
        self.n_missing_entries_ = count_missing(refined.seen.counts, int(edges[-1]))
        self._keep(refined.model, len(edges) - 1, run.n_passes)
        self.__dict__.update(refined.history)
        varied = refined.seen.variances > 0.0
        left = refined.seen.errors[varied] / refined.seen.variances[varied]
        self.explained_variance_ratio_ = float(1.0 - left.mean()) if varied.any() else 0.0

    def _batch_e_step(
        self, rows: Rows, edges: Any, run: Run, so_far: dict[str, Floats]
    ) -> tuple[dict[str, Floats], float]:
        sums, log_likelihood, missing = filter_e_step(self, rows, edges, run, so_far)
        self.n_missing_entries_ += missing
        return sums, log_likelihood

    def _match_sums(self, sums: dict[str, Floats], like: dict[str, Floats]) -> dict[str, Floats]:
        return as_incomplete_sums(sums, like) if sums else sums

    def _batch_m_step(self, sums: dict[str, Floats]) -> None:
        self._keep(filter_m_step(self, sums), self.n_sequences_, self.n_passes_)

    def _keep(self, system: LinearSystem, n_sequences: int, n_passes: int) -> None:
        """Set the parameters of a system as attributes."""
        self.n_dim_state_, self.n_sequences_, self.n_passes_ = system.n_dim_state, n_sequences, n_passes
        for name, own in PARAMETERS.items():
            setattr(self, f"{name}_", getattr(system, own))

    def _facts(self) -> dict[str, Any]:
        values = np.linalg.eigvals(self.transition_matrices_)
        found: dict[str, Any] = {"eigenvalues": [[value.real, value.imag] for value in values.tolist()]}
        found |= {"anchors": anchor_facts(self)} if hasattr(self, "anchor_indices_") else {}
        if hasattr(self, "explained_variance_ratio_"):
            found |= {"explained": self.explained_variance_ratio_}
        return super()._facts() | {"n_components": self.n_dim_state_} | found

    def _describe(self) -> list[str]:
        lines = [f"Kalman filter: {self.n_dim_state_} state dimensions of {self.n_features_in_} features"]
        lines.append(f"{'mode':>6} {'size':>8} {'period in frames':>17}")
        values = np.linalg.eigvals(self.transition_matrices_)
        for i, value in enumerate(sorted(values, key=lambda v: (-abs(v), -v.imag))):
            turn = abs(np.angle(value))
            period = f"{2 * np.pi / turn:.1f}" if turn > 1e-9 else "-"
            lines.append(f"{i:>6} {abs(value):>8.4f} {period:>17}")
        if hasattr(self, "anchor_indices_"):
            shown = ", ".join(str(row) if row >= 0 else "none" for row in self.anchor_indices_.tolist())
            lines.append(f"State coordinates are amounts of the frames {shown}, less the mean.")
        if hasattr(self, "explained_variance_ratio_"):
            share = f"{100 * self.explained_variance_ratio_:.1f} %"
            lines.append(f"The model predicts {share} of a channel's variance one frame ahead.")
            if noises_look_correlated(self):
                lines.append(CORRELATED.format(self.n_dim_state_ + self.n_features_in_))
        return lines

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
