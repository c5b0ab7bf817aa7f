"""What fitted topics say of documents and of themselves: held-out likelihood, coherence, words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dask_dca.engine.topic_passes import Model, completion_likelihood, meetings
from dask_dca.errors import InvalidInputError, InvalidParameterError, warn
from dask_dca.kernels.topic_quality import leading_words, mutual_information
from dask_dca.models.parameters import check_integer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dask_dca.engine.passes import Run
    from dask_dca.engine.rows import Rows

    Floats = NDArray[np.float64]

__all__ = ["TopicScores"]

_POWERS: Final = (1.0,) * 40  # of the steps of inference
_AVERAGE: Final = 0.15  # total variation from the corpus below which a topic says nothing of its own


class TopicScores:
    """Scores and words of a fitted `LatentDirichletAllocation`; not for direct use."""

    if TYPE_CHECKING:
        components_: Floats
        word_probabilities_: Floats
        distance_to_corpus_: Floats
        anchor_words_: NDArray[np.int64]
        n_components_: int
        n_features_in_: int
        n_words_: int
        doc_topic_prior: float | None

        def _rows(self, X: Any, *, reset: bool) -> Rows: ...
        def _run(self, rows: Rows | None = None) -> Run: ...

    def score(self, X: Any, y: Any = None) -> float:
        """
        Score documents by completion, in one pass.

        Every second different word of a document is hidden; the mixture is inferred from the others.

        Parameters
        ----------
        X : array-like of shape (n, V)
            Word counts, as for `fit`. Words that take no part in the model are left out.
        y : None
            Ignored.

        Returns
        -------
        float
            Mean log-likelihood of the hidden words, a word; greater is better, whatever the number of documents.

        Raises
        ------
        InvalidInputError
            No document has two words that the model knows.
        """
        del y
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        likelihood, n_words = completion_likelihood(rows, self._model(), self._run())
        if n_words <= 0:
            msg = "no document of X has two different words that the model knows, so there is nothing to score"
            raise InvalidInputError(msg)
        return likelihood

    def perplexity(self, X: Any) -> float:
        """
        Perplexity of the hidden words of documents: exp(-score).

        Parameters
        ----------
        X : array-like of shape (n, V)
            Word counts, as for `fit`; best of documents that were not fitted.

        Returns
        -------
        float
            Smaller is better; the number of words is what guessing gives.
        """
        return float(np.exp(-self.score(X)))

    def coherence(self, X: Any, n_words: int = 10) -> Floats:
        """
        Coherence of each topic's top words in documents: mean normalised pointwise mutual information.

        Parameters
        ----------
        X : array-like of shape (n, V)
            Word counts of a reference corpus, as for `fit`.
        n_words : int, default 10
            Top words of each topic.

        Returns
        -------
        ndarray of float64, shape (k,)
            In [-1, 1]. Words in no document of X are left out, with a warning; NaN where fewer than two are left.
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        top = leading_words(self.components_, min(check_integer("n_words", n_words, 2), self.n_words_))
        words = np.unique(top)
        counts, n_documents = meetings(rows, words, self._run())
        absent = int((counts.diagonal() == 0).sum())
        if absent:
            warn(f"{absent} of the {len(words)} top words are in no document of X and were left out", UserWarning)
        between = mutual_information(counts, n_documents)
        return np.array([_mean(between[np.ix_(at, at)]) for at in np.searchsorted(words, top)])

    def top_words(self, n_words: int = 10, feature_names: Sequence[str] | None = None) -> NDArray[Any]:
        """
        List the most probable words of each topic.

        Parameters
        ----------
        n_words : int, default 10
            How many.
        feature_names : sequence of str, optional
            Names of the columns, such as `vectorizer.get_feature_names_out()`; by default those of the fit.

        Returns
        -------
        ndarray of shape (k, n_words)
            Names, or the columns' numbers where there are none.
        """
        check_is_fitted(self)
        top = leading_words(self.components_, min(check_integer("n_words", n_words, 1), self.n_words_))
        return self._named(top, feature_names)

    def get_anchor_words(self, feature_names: Sequence[str] | None = None) -> NDArray[Any]:
        """
        Name the anchor words.

        Parameters
        ----------
        feature_names : sequence of str, optional
            Names of the columns; by default those of the fit.

        Returns
        -------
        ndarray of shape (k,)
            Names, or the columns' numbers where there are none.
        """
        check_is_fitted(self)
        return self._named(self.anchor_words_, feature_names)

    def average_topics(self) -> NDArray[np.int64]:
        """
        Tell which topics are little more than the corpus average.

        Returns
        -------
        ndarray of int64, shape (m,)
            Topics within .15 of the corpus's word probabilities, in total variation.
        """
        check_is_fitted(self)
        return np.flatnonzero(self.distance_to_corpus_ < _AVERAGE)

    def _named(self, words: NDArray[np.int64], names: Sequence[str] | None) -> NDArray[Any]:
        found = getattr(self, "feature_names_in_", None) if names is None else np.asarray(names, dtype=object)
        if found is not None and len(found) != self.n_features_in_:
            msg = f"feature_names has {len(found)} names for {self.n_features_in_} words"
            raise InvalidParameterError(msg)
        return words if found is None else found[words]

    def _model(self) -> Model:
        p = self.word_probabilities_
        inverse = np.where(p > 0.0, 1.0 / np.where(p > 0.0, p, 1.0), 0.0)
        rates = np.ascontiguousarray((self.components_ * inverse).T)
        return Model(rates, p, self._prior(self.n_components_), _POWERS)

    def _prior(self, k: int) -> float:
        return 1.0 / k if self.doc_topic_prior is None else float(self.doc_topic_prior)


def _mean(pairs: Floats) -> float:
    usable = pairs[~np.isnan(pairs)]
    return float(usable.mean()) if len(usable) else float("nan")
