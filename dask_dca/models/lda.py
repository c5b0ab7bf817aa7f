"""Latent Dirichlet allocation from anchor words: topics of very many documents in a few passes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dask_dca.engine.blockwise import map_rows
from dask_dca.engine.cooccurrence import cooccurrence_of, sampled
from dask_dca.engine.document_sample import Draw
from dask_dca.engine.topic_passes import mixtures_block
from dask_dca.geometry.votes import wilson_bounds
from dask_dca.kernels.topic_inference import count_scales
from dask_dca.kernels.topic_quality import distances_to_corpus, distinctness
from dask_dca.models.attributes import TOPICS
from dask_dca.models.base import AnchorModel
from dask_dca.models.fitting import whole_fit
from dask_dca.models.lda_checks import check_parameters, known_words
from dask_dca.models.lda_fit import Found, robust_topics, smoothed
from dask_dca.models.lda_paper import paper_topics
from dask_dca.models.lda_refine import Refinement, refine_topics
from dask_dca.models.lda_scores import TopicScores
from dask_dca.models.lda_words import describe_topics, topic_facts

if TYPE_CHECKING:
    from dask_dca.engine.document_census import Census
    from dask_dca.engine.rows import Rows

__all__ = ["LatentDirichletAllocation"]


class LatentDirichletAllocation(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TopicScores, AnchorModel):
    """
    Topic model of documents x words, sparse and of any number of documents.

    Parameters
    ----------
    n_components : int or "auto", default "auto"
        Number of topics k; "auto" counts the directions of the words' co-occurrence that stand out from noise.
    min_df : int or float, default 1
        Words in fewer documents (a number, or a share of the documents) take no part.
    max_iter : int, default 5
        Passes of EM over the documents after anchoring; 0 keeps the anchors' topics.
    subsample : int or None, default 50000
        Where there are more documents than this, anchor words come from so many of them, drawn by row number, and so
        do all passes of EM but the last, which sees all documents; None uses all throughout.
    doc_topic_prior : float, optional
        Pseudo-words of each topic in a document; 1 / k by default.
    topic_word_prior : float, default 0.01
        Pseudo-words of each word in a topic, in the passes of EM.
    method : {"robust", "paper"}, default "robust"
        The measured default, or the paper's recipe as it stands (then `max_iter` is 0).
    n_subproblems : int or "auto", default "auto"
        Number of random directions s; by default 5 k ln k.
    ensemble : str, default "auto"
        For the paper's method: what its planes are drawn from, "gaussian" ("auto"), "sparse", "unit" (single words) or
        "data" (words' rows of the co-occurrence).
    random_state : int, Generator, RandomState or None, default 0
        Seed of all draws. An integer gives the same topics on every fit; None draws a new seed each time.
    retries : int, default 3
        How often a failing task is tried again on a cluster.
    checkpoint : str, optional
        Path or URL where finished passes over chunked data are kept: a fit that was killed, begun again with the
        same data and parameters, repeats only the pass that was not finished, and gives the same bits.
    verbose : bool, default False
        Show the passes' progress on standard error.

    Attributes
    ----------
    components_ : ndarray of float64, shape (k, V)
        Topics: rows are probabilities of words, in the order of how much of the corpus they hold. Words that take
        no part have none.
    anchor_words_ : ndarray of int64, shape (k,)
        Each topic's anchor word, as the number of its column; names: `get_anchor_words`.
    topic_weights_ : ndarray of float64, shape (k,)
        How dominant each topic is: its share of the corpus's words.
    distinctness_ : ndarray of float64, shape (k,)
        Total variation to the topic most like it: 0 is a topic that is there twice.
    distance_to_corpus_ : ndarray of float64, shape (k,)
        Total variation to the corpus's own word probabilities: 0 is a topic of nothing in particular.
    alpha_ : ndarray of float64, shape (k,)
        The Dirichlet parameter of the topics by the paper's equation; far too small where words come in bursts, so
        inference uses `doc_topic_prior`.
    word_probabilities_ : ndarray of float64, shape (V,)
        Frequencies of words in the corpus; zero for those that take no part.
    spectrum_ : ndarray of float64, shape (m,)
        Leading eigenvalues of the scaled co-occurrence (empty for method="paper").
    noise_edge_ : float
        Size of the greatest eigenvalue that noise makes, as seen among the negative ones.
    log_likelihoods_ : ndarray of float64, shape (max_iter,)
        Log-likelihood a word of the training documents before each pass of EM; priors, and passes that take long
        steps, may lower it a little from one to the next.
    votes_, vote_share_ : ndarray of shape (k,)
        Along how many directions each anchor word is extreme, and the share of directions.
    vote_confidence_ : ndarray of float64, shape (k, 2)
        Wilson's 95 % bounds on that share.
    candidates_, candidate_votes_ : ndarray of int64, shape (c,)
        All words with votes.
    n_components_ : int
        Number of topics found.
    n_iter_ : int
        Passes of EM.
    n_subproblems_, n_documents_, n_empty_documents_, n_short_documents_, n_words_ : int
        Number of directions; documents with a pair of words, with none, with a single one; words that take part.
    n_features_in_, n_passes_ : int
        Number of columns V, and how often the fit read all documents.
    feature_names_in_ : ndarray of str, shape (V,)
        Words, where the input had them.

    See Also
    --------
    sklearn.decomposition.LatentDirichletAllocation : Variational Bayes, one process.

    Notes
    -----
    A document that outweighs the others, longer than a fiftieth of all words and than eight documents of mean length,
    counts for a part of its words only, with a warning.

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
    _part, _feature, _anchors_are_features = "topic", "word", True
    _own_directions: ClassVar[bool] = True

    def __init__(
        self,
        n_components: int | str = "auto",
        *,
        min_df: int | float = 1,
        max_iter: int = 5,
        subsample: int | None = 50_000,
        doc_topic_prior: float | None = None,
        topic_word_prior: float = 0.01,
        method: str = "robust",
        n_subproblems: int | str = "auto",
        ensemble: str = "auto",
        random_state: Any = 0,
        retries: int = 3,
        checkpoint: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.min_df = min_df
        self.max_iter = max_iter
        self.subsample = subsample
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.method = method
        self.n_subproblems = n_subproblems
        self.ensemble = ensemble
        self.random_state = random_state
        self.retries = retries
        self.checkpoint = checkpoint
        self.verbose = verbose

    @whole_fit
    def fit(self, X: Any, y: Any = None) -> Self:
        """
        Find the topics.

        Parameters
        ----------
        X : array-like of shape (n, V)
            Word counts, documents as rows: SciPy sparse, Dask array of sparse or dense blocks, zarr group of csr
            triples (as anndata writes them) or its path, NumPy, or any other form that `NMF` takes.
        y : None
            Ignored.

        Returns
        -------
        LatentDirichletAllocation
            The fitted model.

        Raises
        ------
        DCAError
            Negative, non-finite or empty data, or unusable parameters; the message says what to do.
        """
        del y
        rows = self._rows(X, reset=True)
        check_parameters(self, rows.n_features)
        found, census = self._topics(rows)
        self._keep(found)
        self.n_documents_, self.n_short_documents_ = census.n_used, census.n_short
        self.n_empty_documents_ = census.n_empty
        self.components_ = np.ascontiguousarray(found.topics.T)
        self._judge()
        return self

    def _check_parameters(self, rows: Any) -> None:
        super()._check_parameters(rows)
        check_parameters(self, rows.n_features)

    def _topics(self, rows: Rows) -> tuple[Found, Census]:
        """Census, anchoring, and refinement; topics in the order of their weights."""
        settings = self._anchoring()
        run = self._run(rows)
        operator = cooccurrence_of(rows, run, self._draw(rows, settings.seed))
        census, sample = operator.census, sampled(operator)
        known = known_words(census, self.min_df)
        count = None if self.n_components == "auto" else int(self.n_components)
        if self.method == "paper":
            found = paper_topics(operator, known, int(self.n_components), settings)
        else:
            found = robust_topics(sample, known, count, settings.n_subproblems, settings.seed)
        probability = np.where(known, census.words, 0.0)
        probability = probability / probability.sum()
        if self.method == "robust":
            found = found.with_topics(smoothed(found.topics, probability), found.weights)
        priors = (self._prior(len(found.weights)), float(self.topic_word_prior))
        setting = Refinement(probability, count_scales(census.words + census.n_short + 1.0), *priors, operator.longest)
        passes = 0 if self.method == "paper" else self.max_iter
        early = max(passes - 1, 0) if sample is not operator else 0
        found, first = refine_topics(sample.rows, found, replace(setting, longest=sample.longest), early, run)
        found, last = refine_topics(rows, found, setting, passes - early, run)
        self.word_probabilities_, self.log_likelihoods_ = probability, np.array([*first, *last])
        self.n_words_, self.n_iter_, self.n_passes_ = int(known.sum()), passes, run.n_passes
        return found.ordered(), census

    def _draw(self, rows: Rows, seed: int) -> Draw | None:
        if self.subsample is None or self.method == "paper" or rows.n_rows <= self.subsample:
            return None
        return Draw(self.subsample / rows.n_rows, seed)

    def _keep(self, found: Found) -> None:
        self.anchor_words_ = self.anchor_indices_ = found.anchors
        self.topic_weights_, self.alpha_ = found.weights, found.alpha
        self.n_components_ = len(found.anchors)
        self.n_subproblems_ = found.n_planes
        self.votes_, self.vote_share_ = found.votes, found.votes / found.n_planes
        self.vote_confidence_ = wilson_bounds(found.votes, found.n_planes)
        self.candidates_, self.candidate_votes_ = found.candidates, found.candidate_votes
        self.spectrum_, self.noise_edge_ = found.spectrum, found.edge

    def _judge(self) -> None:
        self.distinctness_ = distinctness(self.components_)
        self.distance_to_corpus_ = distances_to_corpus(self.components_, self.word_probabilities_)

    def transform(self, X: Any) -> Any:
        """
        Infer the topic mixtures of documents, those of the fit or others.

        Parameters
        ----------
        X : array-like of shape (n, V)
            Word counts, as for `fit`.

        Returns
        -------
        ndarray or dask.array.Array of shape (n, k)
            Rows on the simplex (even for documents without words); lazy for chunked input.

        Raises
        ------
        DCAError
            Unusable data (for chunked input when computed).
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        return map_rows(rows, mixtures_block, self._model(), self.n_components_)

    def _part_labels(self) -> dict[str, Any]:
        return {"anchor_word": self.get_anchor_words()}

    def _facts(self) -> dict[str, Any]:
        return super()._facts() | topic_facts(self)

    def _describe(self) -> list[str]:
        return describe_topics(self)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
