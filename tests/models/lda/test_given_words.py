"""Anchor words that are given: they are anchor words, the others are found around them."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import dask_dca as dca
from dask_dca.errors import InvalidParameterError
from tests.conftest import bits
from tests.models.lda.data import LDA_FITTED, planted_documents, topic_error

X, TOPICS = planted_documents()
OWN = [int(np.flatnonzero(((TOPICS > 0).sum(axis=0) == 1) & (topic == topic.max()))[0]) for topic in TOPICS]


def lda(k=5, **options):
    return dca.LatentDirichletAllocation(k, **options)


def test_words_that_are_given_are_anchor_words_and_the_others_are_found_around_them():
    for given in (OWN[:1], OWN[2:], OWN):
        model = lda(anchor_words=given).fit(X)
        assert set(given) <= set(model.anchor_words_.tolist())
        assert len(set(model.anchor_words_.tolist())) == 5
        assert topic_error(model.components_, TOPICS) < 0.25
    p = lda().fit(X).word_probabilities_
    rarest = int(np.where(p > 0, p, np.inf).argmin())
    model = lda(anchor_words=[rarest]).fit(X)
    assert model.votes_[model.anchor_words_ == rarest] == [0]  # though nothing speaks for it


def test_of_fewer_topics_than_there_are_one_is_that_of_the_word_that_is_given():
    given = OWN[3]
    topic = lda(2, anchor_words=[given]).fit(X)
    at = topic.anchor_words_.tolist().index(given)
    apart = np.abs(topic.components_[at] - TOPICS).sum(axis=1)
    assert apart.argmin() == 3


def test_names_and_numbers_say_the_same_in_any_form_of_input():
    names = [f"w{j}" for j in range(X.shape[1])]
    whole = lda(anchor_words=OWN[:2]).fit(X)
    table = lda(anchor_words=[f"w{j}" for j in OWN[:2]]).fit(pd.DataFrame(X.toarray(), columns=names))
    chunked = lda(anchor_words=np.array(OWN[:2])).fit(da.from_array(X.toarray(), chunks=(90, 120)))
    assert bits(table, LDA_FITTED) == bits(whole, LDA_FITTED) == bits(chunked, LDA_FITTED)


def test_topics_of_given_words_keep_their_place_where_words_come_in_bursts():
    bursts = X.copy()
    bursts.data = bursts.data * np.random.default_rng(0).geometric(0.3, X.nnz)
    for given in (OWN[:4], OWN):
        model = lda(anchor_words=given).fit(bursts)
        assert model.burstiness_ > 1.25
        for t, word in enumerate(model.anchor_words_.tolist()):
            if word in given:
                apart = np.abs(model.components_[t] - TOPICS).sum(axis=1)
                assert apart.argmin() == OWN.index(word)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0.5], "anchor_words must be column numbers from 0, or names"),
        ([], "anchor_words must be column numbers from 0, or names"),
        (3, "anchor_words must be column numbers from 0, or names"),
        ([3, 3], "anchor_words must be distinct columns, from 0 to 119"),
        ([120], "anchor_words must be distinct columns, from 0 to 119"),
        ([-1], "anchor_words must be distinct columns, from 0 to 119"),
        (["cat"], "the columns of X have no names; pass their numbers"),
        ([0, 1, 2, 3, 4, 5], "anchor_words holds 6 words where n_components=5"),
    ],
)
def test_unusable_words_say_what_is_wrong(given, message):
    with pytest.raises(InvalidParameterError, match=message):
        lda(anchor_words=given).fit(X)


def test_words_that_take_no_part_or_are_no_columns_say_so():
    wide = sparse.hstack([X, sparse.csr_array((X.shape[0], 1))], format="csr")
    with pytest.raises(InvalidParameterError, match="column 120, which is in too few documents"):
        lda(anchor_words=[120]).fit(wide)
    table = pd.DataFrame(X.toarray(), columns=[f"w{j}" for j in range(X.shape[1])])
    with pytest.raises(InvalidParameterError, match="'cat', which is not a column of X"):
        lda(anchor_words=["cat"]).fit(table)
    with pytest.raises(InvalidParameterError, match="need method='robust'"):
        lda(anchor_words=[1], method="paper").fit(X)
