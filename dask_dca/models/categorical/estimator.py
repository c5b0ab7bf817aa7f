"""Hidden Markov models whose frames are symbols, from anchor symbols."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dask_dca.anchoring.parameters import check_count, check_integer, check_number, draw_seed
from dask_dca.engine.advice import is_matrix
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import Rows
from dask_dca.errors import FILL, MARK, InvalidInputError, InvalidParameterError, NotNumbersError
from dask_dca.geometry.arrays import Floats
from dask_dca.models.attributes import CATEGORICAL
from dask_dca.models.base import whole_fit
from dask_dca.models.categorical.fit import (
    CategoricalSettings,
    SymbolChain,
    check_symbols,
    fit_categorical,
    fit_symbols_from_start,
    symbol_counts,
    symbol_e_step,
    symbol_m_step,
)
from dask_dca.models.categorical.passes import CategoricalEmission, encoder, greatest_symbol
from dask_dca.models.em import count_in_init, max_steps
from dask_dca.models.hmm.chain_model import ChainModel
from dask_dca.models.hmm.expectation import ExpectedCounts
from dask_dca.models.hmm.recursions import safe_log
from dask_dca.models.sequences import by_groups

_MAX_SYMBOLS = 5000


def _sums(seen: ExpectedCounts) -> dict[str, Floats]:
    return {"starts": seen.starts, "transitions": seen.transitions, "emissions": symbol_counts(seen)}


class CategoricalHMM(ChainModel):
    """
    Hidden Markov model of symbols, on chunked sequences of any length.

    Parameters
    ----------
    n_components : int, default 1
        Number of states k.
    n_features : int, optional
        Number of symbols v, at most 5,000; one more than the greatest in the data if None. A fit leaves it as it is;
        `n_symbols_` is what hmmlearn sets it to.
    n_iter : int, optional
        Another name of `max_iter`, which hmmlearn uses; with both, other than by default, they must be the same.
    tol : float, default 1e-5
        Passes end where the mean log likelihood per frame rises by less.
    max_iter : int, default 20
        Steps of Baum-Welch over all frames at most; 0 leaves the model as the anchors and the sample gave it.
    n_starts : int, default 5
        Number of starts compared on a sample of 16,384 frames: one from anchor symbols, the others random.
    init : CategoricalHMM or dict, optional
        Start of the fit instead of anchors: a fitted model, or some of `startprob`, `transmat` and `emissionprob`,
        whose zeros stay zero; see `GaussianHMM`.
    warm_start : bool, default False
        Start from the result of the last fit of this model, as if it were `init`.
    params : str, default "ste"
        Letters of the parameters that are learnt: start probabilities, transitions and emissions; others are kept.
    init_params : str, default "ste"
        Letters of the parameters that the fit initialises; others start from attributes that were set by hand.
    algorithm : {"viterbi", "map"}, default "viterbi"
        How `predict` and `decode` find states.
    recursion : {"auto", "segments", "scan"}, default "auto"
        See `GaussianHMM`; "segments" requires a model that forgets.
    random_state : int, Generator, RandomState or None, default 0
        Seed of the random starts.
    retries : int, default 3
        Number of times that a failing task is repeated on a distributed scheduler.
    checkpoint : str, optional
        Path or URL where finished passes over chunked data are saved.
    verbose : bool, default False
        Show the passes' progress on standard error.

    Attributes
    ----------
    startprob_ : ndarray of float64, shape (k,)
        Start probabilities.
    transmat_ : ndarray of float64, shape (k, k)
        Transition probabilities, from a row's state.
    emissionprob_ : ndarray of float64, shape (k, v)
        Probabilities of the symbols in each state.
    anchor_symbols_ : ndarray of int64, shape (k,)
        Anchor symbol of each state in the anchored start; -1 if there are fewer anchors than states.
    start_scores_ : ndarray of float64
        Mean log likelihood per frame that the starts reached on the sample, the best first.
    log_likelihoods_ : ndarray of float64, shape (m + 1,)
        Mean log likelihood per frame, before each of m steps and at the end.
    n_iter_ : int
        Number of steps.
    converged_ : bool
        Whether the last step raised the mean log likelihood by less than `tol`.
    n_components_ : int
        Number of states.
    n_symbols_ : int
        Number of symbols.
    n_samples_seen_ : int
        Number of frames that the model was fitted to, in all batches of `partial_fit`.
    first_starts_, first_transitions_, first_emissions_, first_tallies_ : ndarray
        State of `partial_fit`: sums and counts of the fit.
    later_starts_, later_transitions_, later_emissions_ : ndarray
        The same for later batches.
    n_features_in_, n_sequences_, n_passes_ : int
        Columns of the input (one), sequences, and passes over all frames.

    See Also
    --------
    GaussianHMM : For frames of numbers.
    hmmlearn.hmm.CategoricalHMM : In memory, from one random start.

    Notes
    -----
    One-hot observations are a case of the model of Zhou, Bilmes and Guestrin, NIPS 2014, section 3.2:
    E(x | h) = h^T O^T, where the columns of O are the emission probabilities. Symbols that only one state emits are
    anchors: the rows of P(next, previous symbol | symbol) are mixtures of their rows.

    Examples
    --------
    >>> import dask_dca as dca
    >>> rng = np.random.default_rng(0)
    >>> states = np.repeat(rng.integers(2, size=100), 20)
    >>> X = (3 * states + rng.integers(3, size=2000))[:, None]
    >>> model = dca.CategoricalHMM(2).fit(X)
    >>> (model.emissionprob_ > 0.2)[model.predict(X)[states == 0][0]].tolist()
    [True, True, True, False, False, False]
    """

    _fitted: ClassVar = CATEGORICAL
    _mark: ClassVar = "emissionprob_"
    _parameters: ClassVar = ("startprob_", "transmat_", "emissionprob_")
    _sums: ClassVar = ("starts", "transitions", "emissions")
    _steps_per_batch: ClassVar = (
        5  # EM steps per batch: a single one changes little, as symbols determine states weakly
    )
    _letters: ClassVar = {"s": "startprob_", "t": "transmat_", "e": "emissionprob_"}
    _words: ClassVar = {"startprob": "startprob_", "transmat": "transmat_", "emissionprob": "emissionprob_"}
    _per_row: ClassVar = "predict"
    _part: ClassVar = "state"
    _told: ClassVar = ("n_symbols", "anchor_symbols")
    _sizes: ClassVar = {
        "features": "n_features_in_",
        "parts": "n_components_",
        "next": "n_components_",
        "symbols": "n_symbols_",
    }

    emissionprob_: Floats

    def __init__(
        self,
        n_components: int = 1,
        *,
        n_features: int | None = None,
        n_iter: int | None = None,
        tol: float = 1e-5,
        max_iter: int = 20,
        n_starts: int = 5,
        init: Any = None,
        warm_start: bool = False,
        params: str = "ste",
        init_params: str = "ste",
        algorithm: str = "viterbi",
        recursion: str = "auto",
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
        X : array-like of int, shape (n, 1)
            Symbols from 0 on, in the order of time: NumPy, Dask array or DataFrame, zarr array or its path.
        y : None
            Ignored; lengths passed by position, as in hmmlearn, are accepted with a warning.
        lengths : array-like of int, shape (m,), optional
            Lengths of the sequences, which are concatenated in X; one sequence if None.
        resume : CategoricalHMM, optional
            A model of the first rows of X, to which whole sequences have been appended since: only the blocks after
            these rows are read. The result is that of `partial_fit` with the new sequences.
        groups : array-like of shape (n,) or str, optional
            Alternative to lengths: the id of each frame's sequence; or the name of a column or index level of a
            DataFrame, or of a coordinate of an xarray.DataArray, that holds the ids.

        Returns
        -------
        CategoricalHMM
            The fitted model.

        Raises
        ------
        DCAError
            Entries that are no symbols, lengths that do not add up, or unusable parameters.
        """
        X, lengths = by_groups(X, lengths, groups)
        if resume is not None:
            return self._resumed(resume, X, y, lengths)
        rows = self._rows(X, reset=True)
        if rows.n_features != 1:
            msg = f"symbols are one column, and X has {rows.n_features}; pass X[:, [0]], or GaussianHMM for numbers"
            raise InvalidInputError(msg)
        edges, k = self._edges_to_fit(rows, y, lengths), check_count(self.n_components, rows, "n_components")
        given = self._given()
        k = count_in_init(given, None if self.n_components == 1 else k) or k
        if k is None:
            msg = "n_components must be an integer: there is no rule for the number of states of symbols"
            raise InvalidParameterError(msg)
        run = self._run(rows)
        settings = self._settings(rows, run)
        if given or set(self.params) != set(self._letters):
            found = fit_symbols_from_start(rows, edges, k, given, settings, self.params, run)
        else:
            found = fit_categorical(rows, edges, k, settings, run)
        refined, chain = found.refined, found.refined.model
        self._set(chain)
        self.anchor_symbols_ = np.append(found.anchors, np.full(k - len(found.anchors), -1)).astype(np.int64)
        self._keep_history(refined, found.start_scores, len(edges) - 1, run)
        self.n_components_, self.n_symbols_ = chain.emissions.shape
        self._begin_stream(_sums(refined.seen), rows.n_rows)
        return self

    def _rows(self, X: Any, *, reset: bool) -> Rows:
        try:
            return super()._rows(X, reset=reset)
        except NotNumbersError as error:
            several = isinstance(X, list | tuple) and all(is_matrix(part) for part in X)
            held = "X.compute()" if hasattr(X, "compute") else "numpy.concatenate(X)" if several else "X"
            more = ", and lengths=[len(part) for part in X]" if several else ""
            msg = f"symbols are integers from 0 on; of texts, or other values, pass {encoder(held)}{more}"
            raise NotNumbersError(msg) from error

    def _set(self, chain: SymbolChain) -> None:
        markov = chain.markov
        self.startprob_, self.transmat_, self.emissionprob_ = markov.startprob, markov.transmat, chain.emissions

    def _batch_e_step(self, rows: Rows, edges: Any, run: Run, so_far: Any) -> tuple[dict[str, Floats], float]:
        seen = symbol_e_step(rows, edges, SymbolChain(self._chain(), self.emissionprob_), run)
        return _sums(seen), seen.log_likelihood / rows.n_rows

    def _batch_m_step(self, sums: dict[str, Floats]) -> None:
        self._set(symbol_m_step(**sums))

    def _settings(self, rows: Rows, run: Run) -> CategoricalSettings:
        """Checked parameters; the number of symbols from the data, if it is not given."""
        steps = max_steps(self)
        tol = check_number("tol", self.tol)
        starts = check_integer("n_starts", self.n_starts, 1)
        v = None if self.n_features is None else check_integer("n_features", self.n_features, 1)
        v = greatest_symbol(rows, run) + 1 if v is None else v
        if v > _MAX_SYMBOLS:
            msg = (
                f"there are {v} symbols, and at most {_MAX_SYMBOLS} can be told apart by their pairs; number those "
                f"that occur: pass {encoder('X')}, or join rare ones"
            )
            raise InvalidInputError(msg)
        return CategoricalSettings(v, starts, steps, tol, draw_seed(self.random_state))

    @property
    def _advice(self) -> tuple[str, str]:
        own = "symbol of its own"
        return f"give it a {own}: {FILL}", f"mark it as NaN, then give that a {own}: {MARK}; {FILL}"

    def _draw_frames(self, states: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        cumulated = self.emissionprob_.cumsum(axis=1)[states]
        drawn = (rng.random(len(states))[:, None] >= cumulated).sum(axis=1)
        return np.minimum(drawn, self.emissionprob_.shape[1] - 1)[:, None]

    def _n_parameters(self) -> int:
        k, v = self.emissionprob_.shape
        return k - 1 + k * (k - 1) + k * (v - 1)

    def _emission(self) -> CategoricalEmission:
        return CategoricalEmission(safe_log(self.emissionprob_))

    def _expected(self, probabilities: Floats) -> tuple[Floats, ...]:
        return (probabilities @ self.emissionprob_,)

    def _check_emission(self) -> tuple[int, int]:
        return len(check_symbols(np.asarray(self.emissionprob_, dtype=np.float64))), 1

    def _check_parameters(self, rows: Any) -> None:
        super()._check_parameters(rows)
        max_steps(self)

    def _describe(self) -> list[str]:
        lines = [f"CategoricalHMM: {self.n_components_} states of {self.n_symbols_} symbols"]
        lines.append(f"{'state':>6} {'stays':>7} {'anchor symbol':>14}  most probable symbols")
        for j, row in enumerate(self.emissionprob_):
            top = np.argsort(-row, kind="stable")[:5]
            listed = ", ".join(f"{i} ({row[i]:.2f})" for i in top)
            lines.append(f"{j:>6} {self.transmat_[j, j]:>7.3f} {self.anchor_symbols_[j]:>14}  {listed}")
        return [*lines, self._history()]

    def _n_frames(self) -> int:
        return self.n_samples_seen_
