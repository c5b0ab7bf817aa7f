"""`partial_fit` and `merge`: exact sums of batches, or of two models, are added, and an M-step follows.

The first batch is a fit. Its sums are stored separately from those of later batches, so that models that continued the
same fit on different data can be merged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dask_dca.anchoring.parameters import check_number
from dask_dca.engine.graphs import as_dask
from dask_dca.engine.passes import Reads, Run
from dask_dca.engine.process import numpy_defaults
from dask_dca.engine.rows import Rows, as_rows
from dask_dca.engine.sequences import as_edges
from dask_dca.errors import InvalidInputError, InvalidParameterError
from dask_dca.geometry.arrays import Floats
from dask_dca.models.base import FITTED_NAMES, AnchorModel, whole_fit
from dask_dca.models.sequences import SequenceModel, by_groups

Sums = dict[str, Floats]

_FIRST, _LATER = "first", "later"
_TALLIES: Final = ("n_samples_seen_", "n_iter_")


def add_sums(one: Sums, other: Sums) -> Sums:
    """Add sums of the same names."""
    return {name: value + other[name] for name, value in one.items()}


def _scaled(sums: Sums, factor: float) -> Sums:
    return sums if factor == 1.0 else {name: factor * value for name, value in sums.items()}


def check_grown(rows: Rows, since: int) -> None:
    """Check that rows have been appended after the first `since` rows.

    Raises InvalidInputError: there are none.
    """
    if rows.n_rows <= since:
        msg = (
            f"X has {rows.n_rows} rows, and the model to be resumed was fitted on {since}; resume= is for an array "
            "to which rows have been appended: use partial_fit(X) for a batch of new rows"
        )
        raise InvalidInputError(msg)


def rows_from(rows: Rows, since: int) -> Rows:
    """Return the rows from row number `since` on; blocks before it are not read."""
    check_grown(rows, since)
    source = rows.source if rows.kind == "memory" else as_dask(rows.by_chunk()).source
    later = as_rows(source[since:])
    return replace(later, feature_names=rows.feature_names, form=replace(rows.form, since=since))


def has_stream(model: Any) -> bool:
    """Check that a model has `partial_fit`, and return True; raises InvalidParameterError: the method is "paper"."""
    if model.method != "robust":
        msg = f"method={model.method!r} is for fit(X) alone; a stream takes method='robust'"
        raise InvalidParameterError(msg)
    return True


def seen_rows(model: Any, kind: type) -> int:
    """Check the model that a fit continues, and return the number of rows that it was fitted on.

    Raises InvalidParameterError: it is not a fitted model of this kind.
    """
    if not isinstance(model, kind) or not hasattr(model, "n_samples_seen_"):
        msg = f"resume must be a fitted {kind.__name__}, of the first rows of X; received {model!r}"
        raise InvalidParameterError(msg)
    return int(model.n_samples_seen_)


class Stream(AnchorModel):
    """Base of models with `partial_fit` by sums; not for direct use."""

    _sums: ClassVar[tuple[str, ...]] = ()  # names of the sums; optional ones end in a question mark
    _tallies: ClassVar[tuple[str, ...]] = _TALLIES  # attributes with counts, which are added when models are merged
    _steps_per_batch: ClassVar[int] = 1  # number of EM steps per batch

    n_samples_seen_: int
    n_sequences_: int
    n_iter_: int
    log_likelihoods_: Floats
    first_tallies_: NDArray[np.int64]

    def _batch_e_step(self, rows: Rows, edges: Any, run: Run, so_far: Sums) -> tuple[Sums, float]:
        """Run the E-step over a batch; return the sums for the M-step, and the mean log likelihood."""
        raise NotImplementedError

    def _batch_m_step(self, sums: Sums) -> None:
        """Run the M-step: set the parameters."""
        raise NotImplementedError

    def _match_sums(self, sums: Sums, like: Sums) -> Sums:
        """Convert earlier sums to the form of later ones."""
        return sums

    def _begin_stream(self, sums: Sums, n_rows: int) -> None:
        """Store the sums and counts of a fit, for later batches."""
        self.n_samples_seen_ = n_rows
        self._store_sums(_FIRST, sums)
        self.first_tallies_ = np.array([getattr(self, name) for name in self._tallies], dtype=np.int64)

    def _store_sums(self, which: str, sums: Sums) -> None:
        for name, value in sums.items():
            setattr(self, f"{which}_{name}_", value)

    def _stored_sums(self, which: str) -> Sums:
        found = {name.rstrip("?"): getattr(self, f"{which}_{name.rstrip('?')}_", None) for name in self._sums}
        return {name: value for name, value in found.items() if value is not None}

    def _check_stream(self) -> None:
        if not hasattr(self, "first_tallies_"):
            msg = (
                f"this {type(self).__name__} has no sums to continue from: it was made by hand, from init=, by "
                "method='paper', from data with missing entries, or by an earlier version; fit it without these first"
            )
            raise InvalidParameterError(msg)

    @whole_fit
    def _fit_more(self, earlier: Self, X: Any, y: Any, lengths: Any, forget: float) -> Self:
        return self._fit_batch(earlier, X, y, lengths, forget, 0)

    def _fit_batch(self, earlier: Any, X: Any, y: Any, lengths: Any, forget: float, since: int) -> Self:
        """Continue an earlier model with a batch: the rows of X from row number `since` on."""
        self._copy_fitted(earlier)
        self._check_stream()
        rows = self._rows(X, reset=False)
        edges = self._batch_edges(rows, y, lengths, since)
        rows = rows_from(rows, since) if since else rows
        run = replace(self._run(), reads=Reads(rows.source))
        first, later = (_scaled(self._stored_sums(which), forget) for which in (_FIRST, _LATER))
        likelihoods = [self._em_step(rows, edges, run, first, later) for _ in range(self._steps_per_batch)]
        self.log_likelihoods_ = np.append(self.log_likelihoods_, likelihoods[0])
        self.n_samples_seen_, self.n_iter_ = self.n_samples_seen_ + rows.n_rows, self.n_iter_ + 1
        if edges is not None:
            self.n_sequences_ += len(edges) - 1
        self.n_passes_ = run.n_passes
        return self

    def _em_step(self, rows: Rows, edges: Any, run: Run, first: Sums, later: Sums) -> float:
        """Run the E-step over a batch and the M-step over all batches, and store the sums.

        first, later: sums of earlier batches. Returns the mean log likelihood of the batch before the step.
        """
        seen, log_likelihood = self._batch_e_step(rows, edges, run, _total(first, later))
        first = self._match_sums(first, seen)
        later = add_sums(self._match_sums(later, seen), seen) if later else seen
        self._store_sums(_FIRST, first)
        self._store_sums(_LATER, later)
        self._batch_m_step(_total(first, later))
        return log_likelihood

    def _copy_fitted(self, earlier: Any) -> None:
        for name in vars(earlier).get(FITTED_NAMES, ()):
            setattr(self, name, getattr(earlier, name))

    def _batch_edges(self, rows: Rows, y: Any, lengths: Any, since: int) -> Any:
        """Boundaries of the sequences among the new rows; None for models of single rows."""

    def _resumed(self, model: Any, X: Any, y: Any = None, lengths: Any = None) -> Self:
        """Continue from a model of the first rows of X."""
        return self._fit_batch(model, X, y, lengths, 1.0, seen_rows(model, type(self)))

    def _merged(self, other: Self) -> Self:
        for part in (self, other):
            part._check_stream()
        one, two = self._stored_sums(_FIRST), other._stored_sums(_FIRST)
        one, two = self._match_sums(one, two), self._match_sums(two, one)
        alike = one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)
        if not alike or not np.array_equal(self.first_tallies_, other.first_tallies_):
            msg = (
                "the models come from different fits, whose parts do not correspond to each other: fit one model, "
                "continue two copies of it by partial_fit (with the same forget=), and merge these"
            )
            raise InvalidParameterError(msg)
        return clone(self)._fit_merged(self, other)

    @whole_fit
    def _fit_merged(self, one: Self, other: Self) -> Self:
        self._copy_fitted(one)
        for part in (one, other):  # one may have optional sums that the other lacks
            self._store_sums(_FIRST, self._match_sums(self._stored_sums(_FIRST), part._stored_sums(_FIRST)))
        every = [part._stored_sums(_LATER) for part in (one, other)]
        parts = [self._match_sums(found, self._stored_sums(_FIRST)) for found in every if found]
        n_steps = int(self.first_tallies_[self._tallies.index("n_iter_")])
        self.log_likelihoods_ = np.concatenate([one.log_likelihoods_, other.log_likelihoods_[n_steps + 1 :]])
        for name, before in zip(self._tallies, self.first_tallies_.tolist(), strict=True):
            setattr(self, name, int(getattr(one, name) + getattr(other, name) - before))
        if parts:
            later = parts[0] if len(parts) == 1 else add_sums(*parts)
            self._store_sums(_LATER, later)
            self._batch_m_step(_total(self._stored_sums(_FIRST), later))
        return self


def _total(first: Sums, later: Sums) -> Sums:
    return add_sums(first, later) if later else first


class RowStream(Stream):
    """Base of models of single rows with `partial_fit`; not for direct use."""

    @available_if(has_stream)
    @numpy_defaults
    def partial_fit(self, X: Any, y: Any = None, *, forget: float = 1.0) -> Self:
        """
        Continue the fit with a batch of further rows, by stepwise expectation-maximisation.

        The first batch is a fit. For each later one an E-step computes exact sums over its rows, which are added to
        those of all earlier rows, and an M-step follows. A batch is read once, and not kept.

        Parameters
        ----------
        X : array-like of shape (m, p)
            The next rows, as for `fit`.
        y : None
            Ignored.
        forget : float, default 1
            Factor of the earlier sums before those of this batch are added: 1 weighs all rows equally; use less for
            data that drift.

        Returns
        -------
        object
            The model itself, of all rows so far; `n_samples_seen_` counts them. A model that was saved and loaded
            continues bit for bit the same. Anchors, votes, the number of parts, `converged_` and whatever else no sums
            tell are those of the first batch.

        Raises
        ------
        DCAError
            Unusable data or parameters; the model is as it was before.

        See Also
        --------
        dask_dca.merge : Merge models that continued the same fit.

        Notes
        -----
        Neal and Hinton, A view of the EM algorithm that justifies incremental, sparse, and other variants, 1998; Cappe
        and Moulines, On-line expectation-maximization algorithm for latent data models, 2009.
        """
        forget = check_number("forget", forget, most=1.0)
        return self._fit_more(self, X, None, None, forget) if self.__sklearn_is_fitted__() else self.fit(X)


class SequenceStream(SequenceModel, Stream):
    """Base of models of sequences with `partial_fit`; not for direct use."""

    _tallies: ClassVar[tuple[str, ...]] = (*_TALLIES, "n_sequences_")

    @available_if(has_stream)
    @numpy_defaults
    def partial_fit(
        self, X: Any, y: Any = None, *, lengths: Any = None, groups: Any = None, forget: float = 1.0
    ) -> Self:
        """
        Continue the fit with a batch of further sequences, by stepwise expectation-maximisation.

        The first batch is a fit. For each later one an E-step computes exact sums over its frames, which are added to
        those of all earlier frames, and an M-step follows. A batch is read once, and not kept.

        Parameters
        ----------
        X : array-like of shape (m, p)
            The next complete sequences, as for `fit`.
        y, lengths, groups : object
            As `fit` takes them.
        forget : float, default 1
            Factor of the earlier sums before those of this batch are added: 1 weighs all frames equally; use less for
            data that drift.

        Returns
        -------
        object
            The model itself, of all sequences so far; `n_samples_seen_` counts frames, `n_sequences_` sequences. A
            model that was saved and loaded continues bit for bit the same. Anchors, votes, `converged_` and whatever
            else no sums tell are those of the first batch.

        Raises
        ------
        DCAError
            Unusable data or parameters; the model is as it was before.

        See Also
        --------
        dask_dca.merge : Merge models that continued the same fit.

        Notes
        -----
        Neal and Hinton, A view of the EM algorithm that justifies incremental, sparse, and other variants, 1998; Cappe
        and Moulines, On-line expectation-maximization algorithm for latent data models, 2009.
        """
        forget = check_number("forget", forget, most=1.0)
        X, lengths = by_groups(X, lengths, groups)
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y) if lengths is None else self.fit(X, y, lengths=lengths)
        return self._fit_more(self, X, y, lengths, forget)

    def _batch_edges(self, rows: Rows, y: Any, lengths: Any, since: int) -> NDArray[np.int64]:
        edges = as_edges(self._lengths(rows, y, lengths), rows.n_rows)
        if since and since not in edges:
            msg = (
                f"the model was fitted on {since} frames, and no sequence of X begins there: pass whole sequences, or "
                f"lengths=[..., {rows.n_rows - since}] if the new frames are a sequence of their own"
            )
            if rows.n_rows > since:
                raise InvalidInputError(msg)
        return edges[edges >= since] - since


def merge(model: Any, other: Any) -> Any:
    """
    Merge two models of different rows, as if one model had been fitted on the rows of both.

    Two sites that can't share rows can each run `partial_fit`, and share the models only.

    Parameters
    ----------
    model, other : NMF, GaussianMixture, GaussianHMM, CategoricalHMM, KalmanFilter or LatentDirichletAllocation
        NMF: models fitted by `partial_fit` with the same parameters, including `random_state`, which sets the planes.
        The others: models that continued the same fitted model by `partial_fit`, each with rows of its own; the rows
        of the common fit count once.

    Returns
    -------
    object
        A new model. For NMF it is the same as if the rows of `other` had arrived after those of `model`; row numbers
        continue those of `model`, and so does the low-rank model that fills missing entries. For the others it is the
        M-step on the sums of both: after one batch each, the same as if the two batches had been one, except for
        rounding.

    Raises
    ------
    InvalidParameterError
        The models are of different classes, were not fitted by `partial_fit`, or have different planes; or they come
        from different fits, whose components, states or topics do not correspond.

    See Also
    --------
    dask_dca.NMF.partial_fit : Fits such models.

    Examples
    --------
    >>> import numpy as np
    >>> import dask_dca as dca
    >>> rng = np.random.default_rng(0)
    >>> X = rng.dirichlet(np.ones(3), 100) @ rng.random((3, 8))
    >>> here, there = dca.NMF(3).partial_fit(X[:60]), dca.NMF(3).partial_fit(X[60:])
    >>> both = dca.merge(here, there)
    >>> bool((both.components_ == dca.NMF(3).partial_fit(X).components_).all())
    True
    >>> from copy import deepcopy
    >>> start = dca.GaussianMixture(2).fit(X[:40])
    >>> here, there = deepcopy(start).partial_fit(X[40:70]), deepcopy(start).partial_fit(X[70:])
    >>> dca.merge(here, there).n_samples_seen_
    100
    """
    if type(model) is not type(other):
        msg = f"a {type(model).__name__} and a {type(other).__name__} can't be merged; pass two models of one class"
        raise InvalidParameterError(msg)
    if not hasattr(model, "_merged"):
        msg = f"models that can be merged are those with partial_fit; received {type(model).__name__}"
        raise InvalidParameterError(msg)
    for part in (model, other):
        check_is_fitted(part)
    return model._merged(other)
