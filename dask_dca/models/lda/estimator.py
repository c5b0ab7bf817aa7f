"""Latent Dirichlet allocation from anchor words: topics of very many documents in a few passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dask_dca.anchoring.parameters import check_integer
from dask_dca.engine.passes import Run, map_rows
from dask_dca.engine.rows import Rows
from dask_dca.engine.weights import weigh_rows
from dask_dca.errors import InvalidInputError, InvalidParameterError, warn
from dask_dca.geometry.arrays import Floats
from dask_dca.geometry.votes import wilson_bounds
from dask_dca.models.attributes import TOPICS
from dask_dca.models.base import whole_fit
from dask_dca.models.labelled import NamedParts
from dask_dca.models.lda.corpus import DocumentCensus, Draw, cooccurrence_of, cooccurrence_of_sample
from dask_dca.models.lda.documents import count_scales
from dask_dca.models.lda.fit import (
    FittedTopics,
    check_given,
    check_parameters,
    given_words,
    known_words,
    robust_topics,
)
from dask_dca.models.lda.paper import paper_topics
from dask_dca.models.lda.passes import (
    TopicModel,
    completion_likelihood,
    count_documents_with,
    mixtures_block,
    topic_words_block,
)
from dask_dca.models.lda.refine import Refinement, begin_topics, refine_topics, see_documents, step_topics
from dask_dca.models.lda.topics import distances_to_corpus, leading_words, mutual_information, topic_distances
from dask_dca.models.stream import RowStream

_INFERENCE_POWERS: Final = (1.0,) * 40  # powers of the steps of inference: 40 plain ones
_MAX_AVERAGE_DISTANCE: Final = 0.15  # topics within this total variation of the corpus are average


def _mean(pairs: Floats) -> float:
    usable = pairs[~np.isnan(pairs)]
    return float(usable.mean()) if len(usable) else float("nan")


class LatentDirichletAllocation(NamedParts, RowStream):
    """
    Topic model of sparse word counts, for any number of documents.

    Parameters
    ----------
    n_components : int or "auto", default "auto"
        Number of topics k; "auto" counts the directions of the words' co-occurrence that stand out from noise.
    min_df : int or float, default 1
        Words in fewer documents (a number, or a share of the documents) are left out.
    max_iter : int, default 20
        Maximum number of EM steps after anchoring; 0 keeps the anchors' topics. If words come in bursts, as in real
        text, at most nine steps are taken; with `max_iter` of nine or more, topics are improved by splits and merges on
        some of the documents first, followed by three steps if that succeeds.
    tol : float, default 3e-4
        Steps end when two of them raise the log likelihood per word by less. A tenth of the documents, chosen by their
        words, is held out; steps also end when their log likelihood per word falls by more than 0.025, as with short
        documents, and the last two are undone.
    subsample : int or None, default 50000
        Maximum number of documents from which anchor words are found and on which EM steps are taken, except for the
        last step, which uses all documents. They are drawn by row number; None uses all documents throughout.
    doc_topic_prior : float, optional
        Pseudo-words of each topic in a document; 1 / k by default.
    topic_word_prior : float, default 0.01
        Pseudo-words of each word in a topic, in the passes of EM.
    anchor_words : array-like, optional
        Words that must be among the anchor words: column numbers, or names if X has them. The other anchor words are
        chosen in addition to them. A word that many topics share makes a poor anchor: check its topic's `top_words`.
    method : {"robust", "paper"}, default "robust"
        The default, or the paper's algorithm as published (which takes no EM steps).
    n_subproblems : int or "auto", default "auto"
        Number of random directions s; by default 20 k ln k.
    ensemble : str, default "auto"
        For the paper's method: how the directions of its planes are drawn: "gaussian" ("auto"), "sparse", "unit"
        (single words) or "data" (rows of the co-occurrence).
    random_state : int, Generator, RandomState or None, default 0
        Seed of all draws. An integer gives the same topics on every fit; None draws a new seed each time.
    retries : int, default 3
        How often a failed task is retried on a cluster.
    checkpoint : str, optional
        Path or URL where finished passes over chunked data are kept. If a fit that was killed is started again with the
        same data and parameters, it repeats only the unfinished pass, and its result is bit for bit the same.
    verbose : bool, default False
        Show the passes' progress on standard error.

    Attributes
    ----------
    components_ : ndarray of float64, shape (k, V)
        Topics: rows are probabilities of words, by decreasing share of the corpus. They are zero for words that are
        left out.
    anchor_words_ : ndarray of int64, shape (k,)
        Column number of each topic's anchor word; for names see `get_anchor_words`.
    topic_weights_ : ndarray of float64, shape (k,)
        Share of the corpus's words in each topic.
    topic_distances_ : ndarray of float64, shape (k,)
        Total variation distance to the most similar other topic; 0 for duplicates.
    distance_to_corpus_ : ndarray of float64, shape (k,)
        Total variation distance to the corpus's word probabilities; 0 for a topic equal to the corpus average.
    alpha_ : ndarray of float64, shape (k,)
        The Dirichlet parameter of the topics by the paper's equation; far too small if words come in bursts, so
        inference uses `doc_topic_prior`.
    word_probabilities_ : ndarray of float64, shape (V,)
        Frequencies of words in the corpus; zero for words that are left out.
    spectrum_ : ndarray of float64, shape (m,)
        Leading eigenvalues of the scaled co-occurrence (empty for method="paper").
    noise_edge_ : float
        Upper edge of the eigenvalues that sampling noise alone would make.
    log_likelihoods_ : ndarray of float64, shape (steps + 1,)
        Log likelihood per word of the documents that are not held out, before each step and at the end; priors and
        over-relaxed steps may lower it a little. Empty with method "paper", which takes no steps.
    converged_ : bool
        Whether steps ended by `tol` before their maximum number.
    burstiness_ : float
        Ratio of repetitions of words in documents to the number that the model predicts: one if documents are drawn
        from it, two to four in real text. Above 1.25, one in sixteen of the first topics collects general words, the
        others are sharpened; all steps but the last use the square roots of counts, and leave a document's own
        contribution to the topics out when its mixture is inferred.
    n_moves_ : int
        Number of topics that were split while as many pairs were merged, because held-out documents score better so.
    votes_, vote_share_ : ndarray of shape (k,)
        Number and share of the directions along which each anchor word is extreme.
    vote_confidence_ : ndarray of float64, shape (k, 2)
        Wilson's 95 % confidence bounds on that share.
    candidates_, candidate_votes_ : ndarray of int64, shape (c,)
        All words with votes, and their votes.
    n_components_ : int
        Number of topics found.
    n_iter_ : int
        Number of EM steps.
    n_subproblems_, n_documents_, n_empty_documents_, n_short_documents_, n_words_ : int
        Number of directions; of documents with a pair of words, without words, with a single word; of words that are
        not left out.
    n_features_in_, n_passes_ : int
        Number of columns V, and how often the fit read all documents.
    feature_names_in_ : ndarray of str, shape (V,)
        Words, if the input had names of columns.
    n_samples_seen_ : int
        Number of documents that the model was fitted on, in all batches of `partial_fit`.
    first_counts_, first_words_, first_documents_, first_used_, first_tallies_ : ndarray
        State of `partial_fit`: expected words by topic, occurrences of words and documents that contain them in the
        first fit, and its counts.
    later_counts_, later_words_, later_documents_, later_used_ : ndarray
        The same sums of later batches.

    See Also
    --------
    sklearn.decomposition.LatentDirichletAllocation : Variational Bayes, one process.

    Notes
    -----
    A document that is longer than a fiftieth of all words, and than eight mean lengths, counts only for a part of its
    words, with a warning.

    The word-word co-occurrence of the documents is Q = O E[h h^T] O^T (the paper's section on latent Dirichlet
    allocation): rows of Q lie in the cone of the rows of anchor words, which occur in one topic only. Q is never
    formed; each product with it is a pass over the documents.

    Examples
    --------
    >>> import dask_dca as dca
    >>> rng = np.random.default_rng(0)
    >>> topics = np.kron(np.eye(3), np.full(10, 0.1))
    >>> X = np.array([rng.multinomial(60, h @ topics) for h in rng.dirichlet([0.3] * 3, 200)])
    >>> model = dca.LatentDirichletAllocation(3).fit(X)
    >>> sorted((model.anchor_words_ // 10).tolist())
    [0, 1, 2]
    """

    _fitted: ClassVar = TOPICS
    _sums: ClassVar = ("counts", "words", "documents", "used")
    _tallies: ClassVar = ("n_samples_seen_", "n_iter_", "n_documents_", "n_short_documents_", "n_empty_documents_")
    _told: ClassVar = ("n_documents", "n_words", "n_subproblems", "noise_edge", "log_likelihoods", "n_iter",
                       "converged", "burstiness", "n_moves")  # fmt: skip
    _part: ClassVar[str] = "topic"
    _feature: ClassVar[str] = "word"
    _own_directions: ClassVar[bool] = True

    components_: Floats
    word_probabilities_: Floats
    distance_to_corpus_: Floats
    anchor_words_: NDArray[np.int64]
    n_components_: int
    n_features_in_: int
    n_words_: int
    doc_topic_prior: float | None

    def __init__(
        self,
        n_components: int | str = "auto",
        *,
        min_df: int | float = 1,
        max_iter: int = 20,
        tol: float = 3e-4,
        subsample: int | None = 50_000,
        doc_topic_prior: float | None = None,
        topic_word_prior: float = 0.01,
        anchor_words: Any = None,
        method: str = "robust",
        n_subproblems: int | str = "auto",
        ensemble: str = "auto",
        random_state: Any = 0,
        retries: int = 3,
        checkpoint: str | None = None,
        verbose: bool = False,
    ) -> None:
        self._take(locals())

    @whole_fit
    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, resume: Self | None = None) -> Self:
        """
        Find the topics.

        Parameters
        ----------
        X : array-like of shape (n, V)
            Word counts, documents as rows: SciPy sparse, Dask array of sparse or dense blocks, zarr group of csr
            triples (as anndata writes them) or its path, NumPy, or any other form that `NMF` takes.
        y : None
            Ignored.
        sample_weight : array-like of shape (n,), optional
            How often each document counts: NumPy, or a Dask array in any chunks. An integer weight is equivalent to
            that many copies of the document; a document of weight zero is ignored.
        resume : LatentDirichletAllocation, optional
            A model of the first rows of X, to which rows have been appended since: only the blocks after these rows are
            read. The result is that of `partial_fit` with the new documents.

        Returns
        -------
        LatentDirichletAllocation
            The fitted model.

        Raises
        ------
        DCAError
            Negative, non-finite or empty data, or unusable parameters; the message says what to do.
        """
        if resume is not None and sample_weight is not None:
            msg = "a stream takes documents as they are: pass sample_weight=None with resume"
            raise InvalidParameterError(msg)
        if resume is not None:
            return self._resumed(resume, X)
        rows = self._rows(X, reset=True)
        check_parameters(self, rows.n_features)
        rows = weigh_rows(rows, sample_weight, self._run())
        found, census = self._topics(rows)
        self._keep(found)
        self.n_documents_ = self.n_short_documents_ = self.n_empty_documents_ = 0
        self._tally(census)
        self.components_ = np.ascontiguousarray(found.topics.T)
        self._measure_distances()
        if self.method == "robust":
            self._begin_stream(begin_topics(found, census), rows.n_rows)
        return self

    def _tally(self, census: DocumentCensus) -> None:
        self.n_documents_ += round(census.n_used)
        self.n_short_documents_ += round(census.n_short)
        self.n_empty_documents_ += round(census.n_empty)

    def _batch_e_step(
        self, rows: Rows, edges: Any, run: Run, so_far: dict[str, Floats]
    ) -> tuple[dict[str, Floats], float]:
        sums, mean, census = see_documents(self, rows, run, so_far)
        self._tally(census)
        return sums, mean

    def _batch_m_step(self, sums: dict[str, Floats]) -> None:
        step_topics(self, sums)
        self._measure_distances()

    def _check_parameters(self, rows: Any) -> None:
        super()._check_parameters(rows)
        check_parameters(self, rows.n_features)

    def _topics(self, rows: Rows) -> tuple[FittedTopics, DocumentCensus]:
        """Run the census, anchoring and refinement; topics are returned by decreasing weight."""
        settings = self._anchoring()
        given = given_words(self.anchor_words, getattr(self, "feature_names_in_", None), rows.n_features)
        run = self._run(rows)
        operator = cooccurrence_of(rows, run, self._draw(rows, settings.seed))
        census, sample = operator.census, cooccurrence_of_sample(operator)
        known = known_words(census, self.min_df)
        count = None if self.n_components == "auto" else int(self.n_components)
        check_given(given, known, count)
        if self.method == "paper":
            found = paper_topics(operator, known, int(self.n_components), settings)
        else:
            found = robust_topics(sample, known, count, settings.n_subproblems, settings.seed, given)
        probability = np.where(known, census.words, 0.0)
        probability = probability / probability.sum()
        priors = (self._prior(len(found.weights)), float(self.topic_word_prior))
        setting = Refinement(probability, count_scales(census.words + census.n_short + 1.0), *priors)
        self.word_probabilities_, self.n_words_ = probability, int(known.sum())
        self._keep_steps(np.zeros(0), converged=False, burstiness=np.nan)
        self.n_moves_ = 0
        if self.method == "robust":
            refined = refine_topics(sample, operator, found, setting, self.max_iter, float(self.tol))
            found = refined.found
            likelihoods, self.n_moves_ = np.array(refined.log_likelihoods), refined.n_moves
            self._keep_steps(likelihoods, converged=refined.converged, burstiness=refined.burstiness)
        self.n_passes_ = run.n_passes
        return found.ordered(), census

    def _keep_steps(self, likelihoods: Floats, *, converged: bool, burstiness: float) -> None:
        self.log_likelihoods_, self.n_iter_ = likelihoods, max(len(likelihoods) - 1, 0)
        self.converged_, self.burstiness_ = converged, burstiness

    def _draw(self, rows: Rows, seed: int) -> Draw | None:
        if self.subsample is None or self.method == "paper" or rows.n_copies <= self.subsample:
            return None
        return Draw(self.subsample / rows.total_weight, seed)

    def _keep(self, found: FittedTopics) -> None:
        self.anchor_words_ = found.anchors
        self.topic_weights_, self.alpha_ = found.weights, found.alpha
        self.n_components_ = len(found.anchors)
        self.n_subproblems_ = found.n_planes
        self.votes_, self.vote_share_ = found.votes, found.votes / found.n_planes
        self.vote_confidence_ = wilson_bounds(found.votes, found.n_planes)
        self.candidates_, self.candidate_votes_ = found.candidates, found.candidate_votes
        self.spectrum_, self.noise_edge_ = found.spectrum, found.edge

    def _measure_distances(self) -> None:
        self.topic_distances_ = topic_distances(self.components_)
        self.distance_to_corpus_ = distances_to_corpus(self.components_, self.word_probabilities_)

    def transform(self, X: Any, *, normalize: bool = True) -> Any:
        """
        Infer the topic mixtures of documents.

        Parameters
        ----------
        X : array-like of shape (n, V)
            Word counts, as for `fit`.
        normalize : bool, default True
            Whether rows sum to one; else they are numbers of words of each topic, the pseudo-words of `doc_topic_prior`
            included.

        Returns
        -------
        ndarray or dask.array.Array of shape (n, k)
            Rows on the simplex (with equal shares for documents without words), or numbers of words; lazy for chunked
            input.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed).
        """
        check_is_fitted(self)
        rows = self._for_output(self._rows(X, reset=False))
        return map_rows(rows, mixtures_block if normalize else topic_words_block, self._model(), self.n_components_)

    def score(self, X: Any, y: Any = None) -> float:
        """
        Score documents by completion, in one pass.

        Every second distinct word of a document is hidden, and the mixture is inferred from the others.

        Parameters
        ----------
        X : array-like of shape (n, V)
            Word counts, as for `fit`. Words that the model left out are ignored.
        y : None
            Ignored.

        Returns
        -------
        float
            Mean log likelihood per hidden word; greater is better.

        Raises
        ------
        InvalidInputError
            No document has two words that the model knows.
        """
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
            Word counts, as for `fit`, preferably of documents that the model was not fitted to.

        Returns
        -------
        float
            Smaller is better; guessing all words with equal probability has the number of words as its perplexity.
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
            Number of top words of each topic.

        Returns
        -------
        ndarray of float64, shape (k,)
            In [-1, 1]. Words in no document of X are left out, with a warning; NaN if fewer than two are left.
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        top = leading_words(self.components_, min(check_integer("n_words", n_words, 2), self.n_words_))
        words = np.unique(top)
        counts, n_documents = count_documents_with(rows, words, self._run())
        absent = int((counts.diagonal() == 0).sum())
        if absent:
            warn(f"{absent} of the {len(words)} top words are in no document of X and were left out", UserWarning)
        between = mutual_information(counts, n_documents)
        return np.array([_mean(between[np.ix_(at, at)]) for at in np.searchsorted(words, top)])

    def top_words(self, n_words: int = 10, feature_names: Any = None) -> NDArray[Any]:
        """
        List the most probable words of each topic.

        Parameters
        ----------
        n_words : int, default 10
            Number of words.
        feature_names : sequence of str, vectorizer or mapping, optional
            Names of the columns, or what has them: scikit-learn's vectorizer or its `vocabulary_`, gensim's
            dictionary; by default those of the fit.

        Returns
        -------
        ndarray of shape (k, n_words)
            Names, or the columns' numbers where there are none.
        """
        check_is_fitted(self)
        top = leading_words(self.components_, min(check_integer("n_words", n_words, 1), self.n_words_))
        return self._named(top, feature_names)

    @property
    def anchor_word_indices_(self) -> NDArray[np.int64]:
        """
        Column numbers of the anchor words: another name of `anchor_words_`.

        Returns
        -------
        ndarray of int64, shape (k,)
            Column numbers.
        """
        return self.anchor_words_

    def get_anchor_words(self, feature_names: Any = None) -> NDArray[Any]:
        """
        Return the names of the anchor words.

        Parameters
        ----------
        feature_names : sequence of str, vectorizer or mapping, optional
            Names of the columns, as for `top_words`; by default those of the fit.

        Returns
        -------
        ndarray of shape (k,)
            Names, or the columns' numbers where there are none.
        """
        check_is_fitted(self)
        return self._named(self.anchor_words_, feature_names)

    def average_topics(self) -> NDArray[np.int64]:
        """
        Find the topics that are close to the corpus average.

        Returns
        -------
        ndarray of int64, shape (m,)
            Topics within a total variation of 0.15 of the corpus's word probabilities.
        """
        check_is_fitted(self)
        return np.flatnonzero(self.distance_to_corpus_ < _MAX_AVERAGE_DISTANCE)

    def _named(self, words: NDArray[np.int64], names: Any) -> NDArray[Any]:
        if hasattr(names, "get_feature_names_out"):
            names = names.get_feature_names_out()
        elif isinstance(names, Mapping) and all(isinstance(word, str) for word in names):  # a vectorizer's vocabulary_
            names = sorted(names, key=lambda word: names[word])
        elif isinstance(names, Mapping):  # gensim's dictionary: from column numbers to words
            names = [names[number] for number in range(len(names))]
        found = getattr(self, "feature_names_in_", None) if names is None else np.asarray(names, dtype=object)
        if found is not None and len(found) != self.n_features_in_:
            msg = f"feature_names has {len(found)} names for {self.n_features_in_} words"
            raise InvalidParameterError(msg)
        return words if found is None else found[words]

    def _model(self) -> TopicModel:
        p = self.word_probabilities_
        inverse = np.where(p > 0.0, 1.0 / np.where(p > 0.0, p, 1.0), 0.0)
        rates = np.ascontiguousarray((self.components_ * inverse).T)
        return TopicModel(rates, p, self._prior(self.n_components_), _INFERENCE_POWERS)

    def _prior(self, k: int) -> float:
        return 1.0 / k if self.doc_topic_prior is None else float(self.doc_topic_prior)

    @property
    def doc_topic_prior_(self) -> Any:  # numpydoc ignore=RT01
        """Prior of the documents' mixtures: scikit-learn's name of `alpha_`."""
        return self.alpha_

    @property
    def bound_(self) -> float:  # numpydoc ignore=RT01
        """Final perplexity of the documents that EM was run on, by scikit-learn's name."""
        check_is_fitted(self)
        if not len(self.log_likelihoods_):
            msg = "bound_ comes from EM steps, which method='paper' does not take; use perplexity(X)"
            raise AttributeError(msg)
        return float(np.exp(-self.log_likelihoods_[-1]))

    def _part_labels(self) -> dict[str, Any]:
        return {"anchor_word": self.get_anchor_words()}

    def _facts(self) -> dict[str, Any]:
        anchors, top = self.get_anchor_words().tolist(), self.top_words(10).tolist()
        return super()._facts() | {
            "topics": [
                {
                    "anchor": anchors[t],
                    "words": top[t],
                    "weight": float(self.topic_weights_[t]),
                    "distinctness": float(self.topic_distances_[t]),
                    "distance_to_corpus": float(self.distance_to_corpus_[t]),
                    "vote_share": float(self.vote_share_[t]),
                }
                for t in range(self.n_components_)
            ],
        }

    def _describe(self) -> list[str]:
        size = f"{self.n_words_} words in {self.n_documents_} documents"
        lines = [
            f"LatentDirichletAllocation: {self.n_components_} topics of {size}",
            f"{'topic':>5} {'share':>6} {'votes':>6} {'distinct':>8}  anchor: top words",
        ]
        anchors, top = self.get_anchor_words(), self.top_words(6)
        for t in range(self.n_components_):
            words = " ".join(str(word) for word in top[t])
            numbers = f"{self.topic_weights_[t]:>6.3f} {self.vote_share_[t]:>6.3f} {self.topic_distances_[t]:>8.3f}"
            lines.append(f"{t:>5} {numbers}  {anchors[t]}: {words}")
        return [*lines, *self._certificate()]

    def _certificate(self) -> list[str]:
        lines = []
        if len(self.spectrum_):
            above = max(1, int((self.spectrum_ > self.noise_edge_).sum()))
            seen = "or more " if above >= len(self.spectrum_) else ""
            lines.append(f"{above} {seen}directions of the words' co-occurrence stand out from noise.")
        average = self.average_topics()
        if len(average):
            numbers = ", ".join(str(t) for t in average)
            lines.append(f"Close to the corpus average, so without a subject of their own: topic {numbers}.")
        skipped = [(self.n_empty_documents_, "are empty"), (self.n_short_documents_, "have a single word")]
        lines += [f"{count} documents {what} and were not used." for count, what in skipped if count]
        return lines
