"""Kalman filter: a linear dynamical system whose state coordinates are amounts of k anchor frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dask_dca.engine.sequences import as_edges
from dask_dca.errors import InvalidParameterError
from dask_dca.models.attributes import KALMAN
from dask_dca.models.fitting import whole_fit
from dask_dca.models.kalman_fit import KalmanSettings, fit_kalman
from dask_dca.models.kalman_paper import fit_paper_system
from dask_dca.models.kalman_tracking import KalmanTracking, checked_system
from dask_dca.models.kalman_words import kalman_facts, kalman_words
from dask_dca.models.parameters import check_count, check_integer, check_option

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows
    from dask_dca.kernels.lds_system import LinearSystem
    from dask_dca.models.kalman_fit import Fitted

__all__ = ["KalmanFilter"]

_TYPES = ("auto", "full", "diag")


class KalmanFilter(KalmanTracking):
    """
    Kalman filter and smoother, learnt in a few passes over sequences of any length.

    Parameters
    ----------
    n_dim_state : int or "auto", default "auto"
        State dimensions k; "auto" takes them from the canonical correlations; fewer, with a warning, for few frames.
    covariance_type : {"auto", "full", "diag"}, default "auto"
        Form of R. "full" has correlations, shrunk by as much as they are chance, and needs complete frames; "auto" is
        full up to 1,024 features, and diagonal beyond and where entries are missing.
    max_iter : int, default 5
        EM passes over all frames; 0 keeps the start, which is learnt from at most 20,480 frames.
    method : {"robust", "paper"}, default "robust"
        The measured default, or the paper's bilateral separability; see Notes.
    n_subproblems : int or "auto", default "auto"
        Number of random directions in state space; by default 5 k ln(k + 1).
    ensemble : str, default "auto"
        For the paper's method: what its planes are drawn from, "gaussian" ("auto"), "sparse", "unit" or "data".
    random_state : int, Generator, RandomState or None, default 0
        Seed of the directions. An integer gives the same model on every fit; None draws a new seed each time.
    retries : int, default 3
        How often a failing task is tried again on a cluster.
    checkpoint : str, optional
        Path or URL where finished passes over chunked data are kept: a fit that was killed, begun again with the
        same data and parameters, repeats only the pass that was not finished, and gives the same bits.
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
        R, covariance of the frames' noise, or its diagonal where it is diagonal.
    observation_offsets_ : ndarray of float64, shape (p,)
        What is observed at state zero.
    initial_state_mean_, initial_state_covariance_ : ndarray of float64, shapes (k,) and (k, k)
        Of the first state of a sequence.
    anchor_indices_ : ndarray of int64, shape (k,)
        Frames whose smoothed states are the unit vectors; -1 for an axis that no frame stands for.
    votes_, vote_share_ : ndarray of shape (k,)
        On how many directions each anchor is extreme, and the share of directions.
    vote_confidence_ : ndarray of float64, shape (k, 2)
        Wilson's 95 % bounds on that share.
    n_subproblems_ : int
        Number of directions.
    n_dim_state_ : int
        Number of state dimensions.
    canonical_correlations_ : ndarray of float64, shape (m,)
        Of past and future, decreasing: how much each state dimension tells of the future.
    log_likelihoods_ : ndarray of float64, shape (max_iter + 1,)
        Log-likelihood a frame before each EM pass and at the end.
    explained_ : float
        Share of a channel's variance that is predicted one step ahead, the mean over channels.
    n_features_in_, n_sequences_, n_passes_ : int
        Number of features p and of sequences, and how often the fit read all rows (samples of them are not counted).
    feature_names_in_ : ndarray of str, shape (p,)
        Names of the features, where the input had them.

    See Also
    --------
    dask_dca.GaussianHMM : States that are one of k.

    Notes
    -----
    s_{t+1} = T s_t + w_t, x_t = mu + O s_t + v_t with Gaussian noise w, v (the paper's section on the Kalman filter).
    The start is canonical variate analysis in the directions that neighbouring frames tell of; EM passes run the
    smoother on pieces of sequences in parallel.

    `method="paper"` is bilateral separability: the columns of O are frames x2, those of O T frames x3, found as
    anchors that cover the moments X2^T X3 and X2^T Diag(X1 eta) X3 and their transposes. Rows of X2^T X3 are
    combinations of the columns of O T, so their candidates are the x3, and the transpose's are the x2; the text of the
    paper has the two the other way round. Columns are put in the order and the lengths that make E[h (x) h] symmetric
    and positive; T may grow. The third moments of Gaussian noise vanish, and single frames carry all of their noise:
    expect poor predictions.

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
    _sizes: ClassVar = {"features": "n_features_in_", "parts": "n_dim_state_", "next": "n_dim_state_"}

    def __init__(
        self,
        n_dim_state: int | str = "auto",
        *,
        covariance_type: str = "auto",
        max_iter: int = 5,
        method: str = "robust",
        n_subproblems: int | str = "auto",
        ensemble: str = "auto",
        random_state: Any = 0,
        retries: int = 3,
        checkpoint: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_dim_state = n_dim_state
        self.covariance_type = covariance_type
        self.max_iter = max_iter
        self.method = method
        self.n_subproblems = n_subproblems
        self.ensemble = ensemble
        self.random_state = random_state
        self.retries = retries
        self.checkpoint = checkpoint
        self.verbose = verbose

    @classmethod
    def from_parameters(
        cls,
        transition_matrices: ArrayLike,
        observation_matrices: ArrayLike,
        transition_covariance: ArrayLike,
        observation_covariance: ArrayLike,
        initial_state_mean: ArrayLike | None = None,
        initial_state_covariance: ArrayLike | None = None,
        observation_offsets: ArrayLike | None = None,
    ) -> Self:
        """
        Make a filter of known parameters, which needs no fit.

        Parameters
        ----------
        transition_matrices : array_like, shape (k, k)
            T.
        observation_matrices : array_like, shape (p, k)
            O.
        transition_covariance : array_like, shape (k, k)
            Q; may be singular.
        observation_covariance : array_like, shape (p, p) or (p,)
            R, or its diagonal; may be singular.
        initial_state_mean : array_like, shape (k,), optional
            Mean of the first state of a sequence; zeros if None.
        initial_state_covariance : array_like, shape (k, k), optional
            Its covariance; the identity if None.
        observation_offsets : array_like, shape (p,), optional
            What is observed at state zero; zeros if None.

        Returns
        -------
        KalmanFilter
            Ready for `filter`, `smooth`, `predict`, `loglikelihood`, `sample`.

        Raises
        ------
        InvalidParameterError
            Parameters that do not fit together.
        """
        k = len(np.atleast_2d(np.asarray(transition_matrices)))
        mean = np.zeros(k) if initial_state_mean is None else initial_state_mean
        start = np.eye(k) if initial_state_covariance is None else initial_state_covariance
        system = checked_system(
            transition_matrices,
            observation_matrices,
            transition_covariance,
            observation_covariance,
            mean,
            start,
            observation_offsets,
        )
        model = cls(k)
        model.n_features_in_ = system.n_dim_obs
        model._keep(system, 1, 0)
        return model

    @whole_fit
    def fit(self, X: Any, lengths: Any = None) -> Self:
        """
        Learn the system.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Frames in the order of time: NumPy, Dask array or DataFrame, xarray, zarr array or its path. NaN or masked
            where an entry is missing.
        lengths : array-like of int, shape (m,), optional
            Frames of each sequence, one after the other; one sequence if None.

        Returns
        -------
        KalmanFilter
            The fitted model.

        Raises
        ------
        DCAError
            Infinite or empty data, a channel without an entry, lengths that do not add up, unusable parameters.
        """
        rows = self._rows(X, reset=True)
        edges = as_edges(lengths, rows.n_rows)
        settings = self._anchoring()
        k, passes = self._checked(rows)
        if self.method == "paper":
            return self._fit_paper(rows, edges, k, settings)
        chosen = KalmanSettings(k, self.covariance_type, passes, settings.n_subproblems, settings.seed)
        run = self._run(rows)
        self._keep_fitted(fit_kalman(rows, edges, chosen, run), edges, run)
        return self

    def _checked(self, rows: Any) -> tuple[int | None, int]:
        """Number of states, None for "auto", and of passes."""
        k = check_count(self.n_dim_state, rows, "n_dim_state")
        check_option("covariance_type", self.covariance_type, _TYPES)
        return k, check_integer("max_iter", self.max_iter, 0)

    def _check_parameters(self, rows: Any) -> None:
        super()._check_parameters(rows)
        self._checked(rows)

    def _fit_paper(self, rows: Rows, edges: Any, k: int | None, settings: Any) -> Self:
        if k is None:
            msg = "method='paper' has no rule for the number of states; pass n_dim_state, for example 4"
            raise InvalidParameterError(msg)
        run = self._run(rows)
        found = fit_paper_system(rows, edges, k, settings, run)
        width, anchors = found.system.n_dim_state, found.anchors
        self.anchor_indices_, self.votes_ = anchors.indices[:width], anchors.votes[:width]
        self.vote_share_, self.vote_confidence_ = anchors.vote_share[:width], anchors.confidence[:width]
        self.n_subproblems_ = anchors.n_subproblems
        self._keep(found.system, len(edges) - 1, run.n_passes)
        return self

    def _keep_fitted(self, found: Fitted, edges: NDArray[np.int64], run: Run) -> None:
        anchors, look = found.anchors, found.look
        self.anchor_indices_, self.votes_ = anchors.indices, anchors.votes
        self.vote_share_, self.vote_confidence_ = anchors.votes / anchors.n_directions, anchors.bounds
        self.n_subproblems_, self.canonical_correlations_ = anchors.n_directions, found.correlations
        self.log_likelihoods_ = np.array(found.log_likelihoods) / edges[-1]
        varied = look.variances > 0.0
        self.explained_ = float(1.0 - (look.errors[varied] / look.variances[varied]).mean()) if varied.any() else 0.0
        self._keep(found.system, len(edges) - 1, run.n_passes)

    def _keep(self, system: LinearSystem, n_sequences: int, n_passes: int) -> None:
        """Turn a system into attributes, the one that makes the model usable last."""
        self.n_dim_state_, self.n_sequences_, self.n_passes_ = system.n_dim_state, n_sequences, n_passes
        self.observation_matrices_, self.observation_offsets_ = system.observation, system.offset
        self.transition_covariance_ = system.transition_covariance
        self.observation_covariance_ = system.observation_covariance
        self.initial_state_mean_ = system.initial_mean
        self.initial_state_covariance_ = system.initial_covariance
        self.transition_matrices_ = system.transition

    def _facts(self) -> dict[str, Any]:
        return super()._facts() | kalman_facts(self)

    def _describe(self) -> list[str]:
        return kalman_words(self)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "transition_matrices_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags
