"""Hidden Markov models with Gaussian emissions, from anchors instead of restarts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from dask_dca.anchoring.completion import count_observed, warn_of_few_entries
from dask_dca.anchoring.parameters import check_count
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import Rows
from dask_dca.errors import FewerAnchorsWarning, InvalidInputError, InvalidParameterError, MissingEntriesError, warn
from dask_dca.geometry.arrays import Floats, Numbers
from dask_dca.models.attributes import HMM
from dask_dca.models.base import whole_fit
from dask_dca.models.describe import anchor_facts
from dask_dca.models.em import check_covariances, count_in_init
from dask_dca.models.gaussians import correlate, prepare_gaussians
from dask_dca.models.hmm.chain_model import ChainModel
from dask_dca.models.hmm.fit import (
    MAX_FEATURES,
    HMMFit,
    HMMSettings,
    check_hmm,
    choose_covariances,
    choose_states,
    fit_hmm,
    warn_of_few_values,
    warn_of_floor,
)
from dask_dca.models.hmm.given import chain_e_step, chain_m_step, fit_from_start, initial_sums, measure_chain_burn_in
from dask_dca.models.hmm.model import GaussianEmission, as_matrices, count_parameters, in_form, mixed_moments
from dask_dca.models.hmm.paper import fit_paper_hmm
from dask_dca.models.sequences import by_groups

_MIN_USED_FRAMES = 0.5  # expected number of frames below which a state counts as unused


class GaussianHMM(ChainModel):
    """
    Hidden Markov model with Gaussian emissions, on chunked sequences of any length.

    Parameters
    ----------
    n_components : int or "auto", default "auto"
        Number of states k; "auto" takes it from the covariances between neighbouring frames and the BIC.
    covariance_type : {"diag", "full", "tied", "spherical", "auto"}, default "diag"
        Form of the covariances of a state; "auto" chooses between "diag" and "tied" by held-out likelihood.
    n_iter : int, optional
        Another name of `max_iter`, which hmmlearn uses; with both, other than by default, they must be the same.
    tol : float, default 1e-4
        The fit ends when the mean log likelihood per frame rises by less.
    max_iter : int, default 5
        Maximum number of Baum-Welch steps over all frames; 0 keeps the model of the anchors and the sample.
    min_covar : float or "auto", default "auto"
        Minimum variance of a state; by default a millionth of each feature's variance, or 1 % of its variance within
        the states of the starts, if that is less.
    init : GaussianHMM or dict, optional
        Start of the fit instead of anchors: a fitted model, or some of `startprob`, `transmat`, `means` and `covars`
        (in the shape of their type). The fit then runs plain Baum-Welch steps with exact messages, and zero transitions
        stay zero. Probabilities that are not given are uniform, covariances are those of the data, and means come from
        anchors, with states ordered in time.
    warm_start : bool, default False
        Start from the result of the last fit of this model, as if it were `init`.
    params : str, default "stmc"
        Letters of the parameters that are learnt, as in hmmlearn: start probabilities, transitions, means and
        covariances; others are kept.
    init_params : str, default "stmc"
        Letters of the parameters that the fit initialises; others start from attributes that were set by hand.
    algorithm : {"viterbi", "map"}, default "viterbi"
        How `predict` and `decode` find states.
    recursion : {"auto", "segments", "scan"}, default "auto"
        How long sequences are split: into segments that start a burn-in early, or by an exact scan, which reads the
        data twice. "auto" scans up to 131,072 frames, and for models that forget too slowly.
    method : {"robust", "paper"}, default "robust"
        The default, which was chosen by benchmarks, or the paper's algorithm.
    n_subproblems : int or "auto", default "auto"
        Number of random directions s; by default 6 k ln(k + 1).
    ensemble : str, default "auto"
        Distribution of the planes of the paper's method: "gaussian" ("auto"), "sparse", "unit", "data" or "pairs"; see
        `find_anchors`.
    missing : float or "implicit", optional
        Marker of missing entries, in addition to NaN and masked entries: a number, or "implicit" for entries that
        sparse rows do not store.
    random_state : int, Generator, RandomState or None, default 0
        Seed of the directions. An integer gives the same model on every fit.
    retries : int, default 3
        Number of times that a failing task is repeated on a cluster.
    checkpoint : str, optional
        Path or URL where finished passes over chunked data are saved: a fit that was killed resumes, when repeated with
        the same data and parameters, at the unfinished pass, and gives bit for bit the same result.
    verbose : bool, default False
        Show the passes' progress on standard error.

    Attributes
    ----------
    startprob_ : ndarray of float64, shape (k,)
        Probabilities of the states at the start of a sequence.
    transmat_ : ndarray of float64, shape (k, k)
        Probabilities of the next state (column), given the present one (row).
    means_ : ndarray of float64, shape (k, p)
        Means of the states.
    covariances_ : ndarray of float64
        Covariances: "full" (k, p, p), "tied" (p, p), "diag" (k, p), "spherical" (k,).
    covars_ : ndarray of float64, shape (k, p, p)
        The same as one matrix for each state, as in hmmlearn; may be set in the shape above.
    covariance_type_ : str
        Form of the covariances.
    anchor_indices_ : ndarray of int64, shape (k,)
        For each state the frame of greatest density, a typical one.
    state_counts_ : ndarray of float64, shape (k,)
        Expected number of frames in each state.
    n_components_ : int
        Number of states.
    n_components_range_ : tuple of int
        Range of the numbers of states suggested by the rules behind "auto".
    votes_, vote_share_ : ndarray of shape (k,)
        Number and share of the tails of directions that are nearest to each state.
    vote_confidence_ : ndarray of float64, shape (k, 2)
        Wilson's 95 % bounds on that share.
    start_scores_ : ndarray of float64
        Mean log likelihood per frame of the sample for each start, best first.
    log_likelihoods_ : ndarray of float64, shape (m + 1,)
        Mean log likelihood per frame, before each of m steps over all frames and at the end.
    n_iter_ : int
        Number of these steps.
    converged_ : bool
        Whether the last step raised the mean log likelihood by less than `tol`.
    n_unobserved_rows_ : int
        Number of frames without an observed entry, which count as time steps without an observation.
    n_missing_entries_ : int
        Number of missing entries.
    burn_in_ : int
        Number of frames after which the recursions have forgotten their initial values, to 1e-10; 0 if more than 128.
    n_subproblems_ : int
        Number of directions.
    n_samples_seen_ : int
        Number of frames that the model was fitted to, in all batches of `partial_fit`.
    first_starts_, first_transitions_, first_counts_, first_sums_, first_products_, first_tallies_ : ndarray
        State of `partial_fit`: sums and counts of the fit.
    later_starts_, later_transitions_, later_counts_, later_sums_, later_products_ : ndarray
        The same for later batches.
    stream_origins_, stream_floor_ : ndarray of float64, shape (k, p) and (p,)
        Origins of the moments of batches, and minimum variances.
    n_features_in_, n_sequences_, n_passes_ : int
        Number of features p, of sequences, and of passes of the fit over all rows (without samples).
    feature_names_in_ : ndarray of str, shape (p,)
        Names of the features, if the input has them.

    See Also
    --------
    dask_dca.GaussianMixture : The same without time.
    dask_dca.KalmanFilter : Continuous states.

    Notes
    -----
    The paper (section 3.3 of Zhou, Bilmes and Guestrin, NIPS 2014) treats three successive frames as three views of
    the state of the middle one, and its anchors are single frames. Here anchors are averages over the tails of random
    directions, of the frames and of features whose means depend on the covariances. States are then split and merged
    while the likelihood rises, and each pass over all frames is followed by corrected EM steps on the sample.

    Examples
    --------
    >>> import dask_dca as dca
    >>> rng = np.random.default_rng(0)
    >>> states = np.repeat([0, 1, 0, 1], 50)
    >>> X = np.array([[0.0, 0.0], [3.0, 3.0]])[states] + rng.standard_normal((200, 2))
    >>> model = dca.GaussianHMM(2).fit(X)
    >>> found = model.predict(X)
    >>> int(max((found == states).sum(), (found != states).sum()))
    200
    """

    _fitted: ClassVar = HMM
    _mark: ClassVar = "means_"
    _parameters: ClassVar = ("startprob_", "transmat_", "means_", "covariances_")
    _sums: ClassVar = ("starts", "transitions", "counts", "sums", "products")
    _letters: ClassVar = {"s": "startprob_", "t": "transmat_", "m": "means_", "c": "covariances_"}
    _words: ClassVar = {
        "startprob": "startprob_",
        "transmat": "transmat_",
        "means": "means_",
        "covars": "covariances_",
        "covariances": "covariances_",
    }
    _per_row: ClassVar = "predict"
    _part: ClassVar = "state"
    _own_directions: ClassVar = True
    _has_views: ClassVar = True
    _told: ClassVar = ("n_components_range", "n_subproblems", "state_counts")

    means_: Floats
    covariances_: Floats

    def __init__(
        self,
        n_components: int | str = "auto",
        covariance_type: str = "diag",
        *,
        n_iter: int | None = None,
        tol: float = 1e-4,
        max_iter: int = 5,
        min_covar: float | str = "auto",
        init: Any = None,
        warm_start: bool = False,
        params: str = "stmc",
        init_params: str = "stmc",
        algorithm: str = "viterbi",
        recursion: str = "auto",
        method: str = "robust",
        n_subproblems: int | str = "auto",
        ensemble: str = "auto",
        missing: float | str | None = None,
        random_state: Any = 0,
        retries: int = 3,
        checkpoint: str | None = None,
        verbose: bool = False,
    ) -> None:
        self._take(locals())

    @whole_fit
    def fit(
        self, X: Any, y: Any = None, *, lengths: Any = None, groups: Any = None, resume: Self | None = None
    ) -> Self:
        """
        Learn the states.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Frames in the order of time: NumPy, Dask array or DataFrame, xarray, zarr array or its path.
        y : None
            Ignored; lengths passed by position, as in hmmlearn, are accepted with a warning.
        lengths : array-like of int, shape (m,), optional
            Lengths of the sequences, which are concatenated in X; one sequence if None.
        resume : GaussianHMM, optional
            A model of the first rows of X, to which whole sequences have been appended since: only the blocks after
            these rows are read. The result is that of `partial_fit` with the new sequences.
        groups : array-like of shape (n,) or str, optional
            Alternative to lengths: the id of each frame's sequence; or the name of a column or index level of a
            DataFrame, or of a coordinate of an xarray.DataArray, that holds the ids.

        Returns
        -------
        GaussianHMM
            The fitted model.

        Raises
        ------
        DCAError
            Infinite or empty data, lengths that do not add up, or unusable parameters; the message says what to do.

        Notes
        -----
        Missing entries are NaN, masked, or marked by `missing`. The start then uses frames completed by a Bayesian
        low-rank model, and EM maximises the likelihood of the observed entries. A `FewEntriesWarning` is issued if too
        few entries were observed.
        """
        X, lengths = by_groups(X, lengths, groups)
        if resume is not None:
            return self._resumed(resume, X, y, lengths)
        rows = self._rows(X, reset=True)
        edges = self._edges_to_fit(rows, y, lengths)
        settings = check_hmm(self, rows.n_features)
        k = check_count(self.n_components, rows, "n_components")
        given, run = self._given(), self._run(rows)
        if given or set(self.params) != set(self._letters):
            return self._fit_from(given, rows, edges, settings, run)
        if self.method == "paper":
            if k is None:
                msg = "method='paper' has no rule for the number of states; pass n_components, for example 5"
                raise InvalidParameterError(msg)
            self._keep(fit_paper_hmm(rows, edges, k, settings, self._anchoring(), run), edges, run)
            return self
        try:
            (found, k), missing = self._find(rows, edges, k, settings, run), False
        except MissingEntriesError as error:
            error.with_traceback(None)  # as in `fit_observed`
            (found, k), missing = self._find(rows, edges, k, replace(settings, missing=True), run), True
        unobserved, n_observed = count_observed(rows, run) if missing else (0, rows.n_rows * rows.n_features)
        self._keep(found, edges, run)
        self.n_unobserved_rows_, self.n_missing_entries_ = unobserved, rows.n_rows * rows.n_features - n_observed
        if not missing:
            self._begin_stream(initial_sums(self, found), rows.n_rows)
        n_entries, remedy = (rows.n_rows - unobserved) * rows.n_features, "use fewer states, or covariance_type='diag'"
        warn_of_few_entries(n_observed, n_entries, self._n_parameters(), in_blocks=found.in_blocks, remedy=remedy)
        if self.min_covar == "auto":
            warn_of_floor(found.model.at_floor, self.covariances_, self.covariance_type_)
        unused = int((self.state_counts_ < _MIN_USED_FRAMES).sum())
        if not warn_of_few_values(found.n_distinct, k) and unused:
            msg = (
                f"{unused} of {self.n_components_} states have no frames; fit again with "
                f"n_components={self.n_components_ - unused}"
            )
            warn(msg, FewerAnchorsWarning)
        return self

    def _batch_e_step(self, rows: Rows, edges: Any, run: Run, so_far: Any) -> tuple[dict[str, Floats], float]:
        self.burn_in_ = measure_chain_burn_in(self, rows, edges, self._run())  # of a sample, which is no pass
        return chain_e_step(self, rows, edges, run)

    def _merged(self, other: Self) -> Self:
        found = super()._merged(other)
        found.burn_in_ = max(self.burn_in_, other.burn_in_) if self.burn_in_ and other.burn_in_ else 0
        return found

    def _batch_m_step(self, sums: dict[str, Floats]) -> None:
        chain_m_step(self, sums)

    def _fit_from(self, given: dict[str, Floats], rows: Rows, edges: Numbers, settings: HMMSettings, run: Run) -> Self:
        """Fit from given parameters."""
        if self.method == "paper":
            msg = "method='paper' starts from the paper's anchors and learns all; leave init and params out"
            raise InvalidParameterError(msg)
        k = count_in_init(given, check_count(self.n_components, rows, "n_components"))
        if k is None:
            k, _ = choose_states(rows, edges, settings, run)
        start = self._start()
        if isinstance(start, GaussianHMM):
            other = start._form
            kind = other if self.covariance_type == "auto" else settings.covariance_type
            settings = replace(settings, covariance_type=kind)
            if "covariances_" in given and kind != other:
                given["covariances_"] = in_form(start.covars_, np.ones(k), kind)
        self._keep(fit_from_start(rows, edges, k, given, settings, self.params, run), edges, run)
        return self

    def _find(self, rows: Rows, edges: Numbers, k: int | None, settings: HMMSettings, run: Run) -> tuple[HMMFit, int]:
        """Choose the parameters that are "auto", and fit."""
        k, bounds = (k, (k, k)) if k else choose_states(rows, edges, settings, run)
        if self.covariance_type == "auto":
            kind = choose_covariances(rows, edges, k, settings, run)
            settings = replace(settings, covariance_type=kind)
        return replace(fit_hmm(rows, edges, k, settings, run), n_range=bounds), k

    def _draw_frames(self, states: Numbers, rng: np.random.Generator) -> Floats:
        noise = rng.standard_normal((len(states), self.n_features))
        return self.means_[states] + correlate(noise, states, self.covariances_, self._form)

    @property
    def covars_(self) -> Floats:  # numpydoc ignore=RT01
        """Covariances as one matrix for each state (k, p, p); may be set in the shape of their type."""
        covariances = np.asarray(self.covariances_, dtype=np.float64)
        return as_matrices(covariances, self._form, *self._shape_of_means())

    @covars_.setter
    def covars_(self, values: Any) -> None:  # numpydoc ignore=GL08
        self.covariances_ = np.array(values, dtype=np.float64)

    @property
    def n_features(self) -> int:  # numpydoc ignore=RT01
        """Number of features, as hmmlearn calls it."""
        return self._shape_of_means()[1]

    @property
    def _form(self) -> str:
        """Form of the covariances: that chosen by a fit, else the parameter."""
        return getattr(self, "covariance_type_", self.covariance_type)

    def _n_parameters(self) -> int:
        return count_parameters(self._form, *self._shape_of_means())

    def _emission(self) -> GaussianEmission:
        return GaussianEmission(prepare_gaussians(self.means_, self.covariances_, self._form))

    def _expected(self, probabilities: Floats) -> tuple[Floats, ...]:
        means, p = np.asarray(self.means_, dtype=np.float64), self.n_features
        if p > MAX_FEATURES:
            msg = (
                f"forecast makes covariances of {p} x {p} features, and at most {MAX_FEATURES} are possible; for states"
                " and means alone: ahead = model.filter(X)[-1] @ model.transmat_ and ahead @ model.means_"
            )
            raise InvalidInputError(msg)
        return mixed_moments(probabilities, means, self.covars_)

    def _check_emission(self) -> tuple[int, int]:
        k, p = self._shape_of_means()
        check_covariances(self.covariances_, self._form, k, p)
        return k, p

    def _shape_of_means(self) -> tuple[int, int]:
        shape = np.shape(self.means_)
        if len(shape) != 2:
            msg = f"means_ must be a matrix, a row for each state; received an array of shape {shape}"
            raise InvalidParameterError(msg)
        return shape

    def _check_parameters(self, rows: Any) -> None:
        super()._check_parameters(rows)
        check_hmm(self, rows.n_features)

    def _keep(self, found: HMMFit, edges: Numbers, run: Run) -> None:
        """Set the fitted attributes."""
        model, (seen, self.anchor_indices_) = found.model, found.refined.seen
        self._keep_history(found.refined, found.start_scores, len(edges) - 1, run)
        self.n_components_, self.n_components_range_ = len(model.means), found.n_range
        self.n_missing_entries_ = 0
        self.state_counts_, self.burn_in_ = seen.counts, found.burn_in
        self.votes_, self.vote_share_ = found.votes, found.votes / max(found.n_tails, 1)
        self.vote_confidence_, self.n_subproblems_ = found.confidence, found.n_tails // 2
        self.startprob_, self.transmat_ = model.markov.startprob, model.markov.transmat
        self.covariance_type_, self.covariances_ = model.covariance_type, model.covariances
        self.means_ = model.means

    def _facts(self) -> dict[str, Any]:
        return super()._facts() | {"anchors": anchor_facts(self)}

    def _describe(self) -> list[str]:
        head = f"GaussianHMM: {self.n_components_} states of {self.n_features_in_} features ({self.covariance_type_})"
        stay = np.diagonal(self.transmat_)
        lines = [f"{'state':>6} {'frames':>12} {'stays':>7} {'typical frame':>14}"]
        lines += [
            f"{j:>6} {self.state_counts_[j]:>12.1f} {stay[j]:>7.3f} {self.anchor_indices_[j]:>14}"
            for j in range(self.n_components_)
        ]
        return [head, *lines, self._history()]

    def _n_frames(self) -> int:
        return round(self.state_counts_.sum())
