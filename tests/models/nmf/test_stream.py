"""Streams: the same anchors for any batches in any order, for two sites, after a save, and of an array that grew."""

import re

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_dca as dca
from benchmarks.regimes import make, recall
from dask_dca.errors import InvalidInputError, InvalidParameterError, NotFiniteError
from dask_dca.models.nmf import stream
from tests.contract.entries import fitted_bytes
from tests.strategies import chunkings, matrices

OF_ARRIVAL = ("anchor_indices_", "candidates_", "candidate_votes_", "stream_numbers_")


def streamed(batches, k=4, **options):
    model = dca.NMF(k, **options)
    for batch in batches:
        model.partial_fit(batch)
    return model


def of_content(model):
    """All that was found, without the numbers of rows, which tell the order of arrival."""
    return {name: value for name, value in fitted_bytes(model).items() if name not in OF_ARRIVAL}


def mixtures(n=300, p=12, k=4, seed=0):
    rng = np.random.default_rng(seed)
    X = np.vstack([rng.dirichlet(np.full(k, 0.5), n - k), np.eye(k)]) @ rng.random((k, p))
    return X[rng.permutation(n)]


@given(st.data())
@settings(max_examples=25)
def test_any_batches_and_chunks_in_any_order_give_the_same_bits(data):
    matrix = data.draw(matrices())
    X = matrix.X
    order = np.random.default_rng(data.draw(st.integers(0, 99))).permutation(len(X))
    cuts = np.cumsum(data.draw(chunkings(len(X), empty=False)))[:-1]
    batches = np.split(X[order], cuts)
    if not batches[0].any():
        return
    chunks = (data.draw(chunkings(len(batches[-1]))), data.draw(chunkings(X.shape[1], most=3, empty=False)))
    batches[-1] = da.from_array(batches[-1], chunks=chunks)
    whole, parts = streamed([X], matrix.k), streamed(batches, matrix.k)
    assert of_content(parts) == of_content(whole)
    assert (X[order][parts.anchor_indices_] == X[whole.anchor_indices_]).all()
    assert parts.components_.dtype == X.dtype


@pytest.mark.parametrize("n_batches", [1, 7, 100])
def test_batches_in_their_order_have_the_numbers_of_the_whole(n_batches):
    X = mixtures()
    assert fitted_bytes(streamed(np.array_split(X, n_batches))) == fitted_bytes(streamed([X]))


def test_rows_of_one_ray_are_told_apart_by_content_and_copies_by_number():
    """Scaled by powers of two rows tie exactly; the one that is kept is the same whichever comes first."""
    X = mixtures(40)
    rows = np.vstack([X, 2.0 * X, X, 0.5 * X])
    one, other = streamed([rows]), streamed([rows[::-1]])
    assert of_content(one) == of_content(other)
    firsts = [np.flatnonzero((rows == row).all(axis=1))[0] for row in one.stream_rows_]
    assert one.stream_numbers_.tolist() == firsts


def test_a_saved_model_goes_on(tmp_path):
    X, model = mixtures(), dca.NMF(4)
    for i, batch in enumerate(np.array_split(X, 5)):
        model.partial_fit(batch).save(str(tmp_path / f"{i}.zarr"))
        model = dca.load_model(str(tmp_path / f"{i}.zarr"))
    assert fitted_bytes(model) == fitted_bytes(streamed([X]))


@pytest.mark.parametrize("random_state", [None, np.random.default_rng(3)])
def test_planes_are_those_of_the_first_batch(random_state):
    X = mixtures()
    first = streamed([X[:100]], random_state=random_state)
    seed = first.stream_seed_
    assert first.partial_fit(X[100:]).stream_seed_ == seed
    assert dca.NMF(4, random_state=random_state).partial_fit(X).stream_seed_ != seed


def test_two_sites_are_merged_as_if_their_rows_followed_each_other():
    X = mixtures()
    here, there = streamed([X[:120]]), streamed(np.array_split(X[120:], 3))
    before = fitted_bytes(here), fitted_bytes(there)
    assert fitted_bytes(dca.merge(here, there)) == fitted_bytes(streamed([X]))
    assert of_content(dca.merge(there, here)) == of_content(streamed([X]))
    assert (fitted_bytes(here), fitted_bytes(there)) == before
    assert fitted_bytes(dca.merge(here, there).partial_fit(X[:9])) == fitted_bytes(streamed([X, X[:9]]))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda X: dca.NMF(4).fit(X), "fit both by partial_fit"),
        (lambda X: dca.NMF(4, random_state=1).partial_fit(X), "random_state, an integer"),
        (lambda X: dca.NMF(3).partial_fit(X), "the same n_components"),
        (lambda X: dca.NMF(4).partial_fit(X.iloc[:, 1:]), "the same n_features_in"),
        (lambda X: dca.NMF(4).partial_fit(X.iloc[:, ::-1]), "the same columns, in one order"),
        (lambda X: dca.GaussianMixture(2).fit(X), "two models of one class"),
    ],
)
def test_what_can_not_be_merged_is_refused(other, message):
    X = pd.DataFrame(mixtures(), columns=list("abcdefghijkl"))
    with pytest.raises(InvalidParameterError, match=message):
        dca.merge(streamed([X]), other(X))


def test_an_array_that_grew_is_read_from_where_it_ended(tmp_path):
    X = mixtures()
    array = zarr.create_array(str(tmp_path / "x.zarr"), shape=(100, 12), chunks=(25, 12), dtype="f8")
    array[:] = X[:100]
    early = dca.NMF(4).partial_fit(str(tmp_path / "x.zarr"))
    array.append(X[100:])
    for chunk in (tmp_path / "x.zarr" / "c").glob("[0-3]"):
        for file in chunk.iterdir():
            file.write_bytes(b"damaged")  # whoever reads an old chunk fails
    late = dca.NMF(4).fit(str(tmp_path / "x.zarr"), resume=early)
    assert fitted_bytes(late) == fitted_bytes(streamed([X]))
    assert early.n_samples_seen_ == 100


@pytest.mark.parametrize("n_first", [100, 113])
def test_rows_before_the_first_new_one_take_no_part(n_first):
    X = mixtures()
    grown = X.copy()
    grown[:n_first] = 1e6 * np.eye(12)[0]  # would be extreme
    for data in (grown, da.from_array(grown, chunks=(40, 5))):
        late = dca.NMF(4).fit(data, resume=streamed([X[:n_first]]))
        assert fitted_bytes(late) == fitted_bytes(streamed([X]))


def test_after_fit_the_anchors_stand_for_its_rows():
    X = mixtures()
    fitted = dca.NMF(4).fit(X[:200])
    expected = streamed([X[:200][fitted.anchor_indices_], X[200:]])
    for late in (dca.NMF(4).fit(X, resume=fitted), dca.NMF(4).fit(X[:200]).partial_fit(X[200:])):
        assert sorted(map(tuple, late.components_)) == sorted(map(tuple, expected.components_))
        assert late.n_samples_seen_ == 300


def test_nothing_new_and_no_model_are_refused():
    X = mixtures()
    with pytest.raises(InvalidInputError, match="300 rows, and the model to be resumed"):
        dca.NMF(4).fit(X, resume=streamed([X]))
    for model in (dca.NMF(4), "model.zarr"):
        with pytest.raises(InvalidParameterError, match="resume must be a fitted NMF"):
            dca.NMF(4).fit(X, resume=model)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "pass an integer"),
        ({"method": "paper"}, "method='paper' is"),
        ({"basis": "free"}, r"is for fit\(X\) alone; a stream takes basis='rows'"),
        ({"ensemble": "sparse"}, r"is for fit\(X\) alone; a stream takes .*'auto'"),
        ({"selection": "votes"}, r"is for fit\(X\) alone; a stream takes .*'auto'"),
        ({"known": [0]}, "a stream takes known=None"),
    ],
)
def test_models_without_planes_that_are_fixed_have_no_partial_fit(options, message):
    model = dca.NMF(**({"n_components": 3} if options else {}), **options)
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError) as caught:
        model.partial_fit(mixtures())
    assert re.search(message, str(caught.value.__cause__))
    with pytest.raises(InvalidParameterError, match=message):
        model.fit(mixtures(), resume=streamed([mixtures()[:9]]))


def test_a_batch_that_is_refused_leaves_the_model_as_it_was():
    X = mixtures()
    model = streamed([X])
    before = fitted_bytes(model)
    unseen, infinite = np.full((2, 12), np.nan), np.full((2, 12), np.inf)
    refused = (unseen, InvalidInputError), (infinite, NotFiniteError), (-X, InvalidInputError), (X[:, 1:], ValueError)
    for wrong, error in refused:
        with pytest.raises(error):
            model.partial_fit(wrong)
        assert fitted_bytes(model) == before


def test_early_batches_may_span_less_than_k_dimensions_and_zero_rows_are_counted():
    X = mixtures()
    model = streamed([X[:2]])
    assert model.n_components_ == 2
    model.partial_fit(np.zeros((3, 12))).partial_fit(X)
    assert (model.n_components_, model.n_zero_rows_, model.n_samples_seen_) == (4, 3, 305)
    assert model.transform(X).shape == (300, 4)
    with pytest.raises(InvalidInputError, match="are all rows zero"):
        dca.NMF(2).partial_fit(np.zeros((3, 12)))


def test_heights_are_exact_and_extremes_are_those_of_all_rows():
    X = mixtures(500)
    model = streamed(np.array_split(X, 4))
    planes = stream.FixedPlanes(int(model.stream_seed_), model.n_subproblems_, 128, 12)
    places = [[int(v) for v in row] for row in np.rint(X / X.sum(axis=1, keepdims=True) * 2.0**31)]
    for t in (0, 5, model.n_subproblems_ + 3):
        direction = [int(v) for v in planes.directions()[t]]
        heights = [
            sum(a * b for a, b in zip(direction, place, strict=True)) for place in places
        ]  # in integers of any length
        most, least = model.stream_numbers_[model.stream_extremes_[:, t]]
        assert (heights[most], heights[least]) == (max(heights), min(heights))


@pytest.mark.parametrize(("regime", "noise"), [("ill", 0.0), ("dirichlet1", 0.05), ("sparse", 0.05)])
def test_a_stream_finds_the_anchors_that_the_batch_fit_finds(regime, noise):
    for seed in range(4):
        X, anchors = make(regime, 2000, 40, 5, noise, seed)
        model = streamed(np.array_split(np.maximum(X, 0.0), 4), 5)
        assert recall(model.anchor_indices_, anchors) == 1.0


def with_holes(X, share=0.3, seed=0):
    return np.where(np.random.default_rng(seed).random(X.shape) < share, np.nan, X)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n_batches", [1, 8])
def test_missing_entries_are_filled_by_the_model_of_the_first_batch_with_any(seed, n_batches):
    X = mixtures(1200, 20, seed=seed)
    holes = with_holes(X, seed=seed)
    holes[700] = np.nan
    model = streamed(np.array_split(holes, n_batches))
    assert model.anchor_indices_.tolist() == streamed([X]).anchor_indices_.tolist()
    np.testing.assert_allclose(model.components_, X[model.anchor_indices_], atol=1e-2)
    assert (model.n_missing_entries_, model.n_unobserved_rows_, model.n_zero_rows_) == (np.isnan(holes).sum(), 1, 0)
    assert np.nanmax(abs(model.impute(holes) - X)[np.arange(1200) != 700]) < 1e-2
    whole = dca.NMF(4).fit(holes)
    assert model.reconstruction_err(holes) < 1.1 * whole.reconstruction_err(holes) + 1e-3


@pytest.mark.parametrize("learnt", [False, True])
def test_passes_over_a_batch_with_missing_entries_are_counted(learnt):
    """The first such batch is read in vain, for a sample of the model, to count, and to compete; later ones twice."""
    X = mixtures(400)
    batch, read = with_holes(X[200:]), []

    def block(part):
        read.append(len(part))
        return part

    model = streamed([with_holes(X[:200])] if learnt else [X[:200]])
    whole = da.from_array(batch, chunks=(200, 12)).map_blocks(block, dtype=float, meta=np.empty((0, 0)))
    model.partial_fit(whole)
    assert model.n_passes_ == (2 if learnt else 4) == len(read)


def test_holes_change_no_bit_of_complete_batches_and_any_chunks_have_the_same(tmp_path):
    X = mixtures(600, 20)
    first, holes, last = X[:200], with_holes(X[200:400]), X[400:]
    model = streamed([first, holes])
    model.save(str(tmp_path / "m.zarr"))
    found = fitted_bytes(model.partial_fit(last))
    assert fitted_bytes(dca.load_model(str(tmp_path / "m.zarr")).partial_fit(last)) == found
    assert fitted_bytes(streamed([first, da.from_array(holes, chunks=(17, 7)), last])) == found
    assert fitted_bytes(dca.NMF(4).fit(np.vstack([first, holes]), resume=streamed([first])).partial_fit(last)) == found
    one, other = streamed([first, last]), streamed([first, holes])
    complete = streamed([first, last, first])
    assert complete.n_missing_entries_ == 0
    assert not hasattr(complete, "completion_mean_")
    merged = dca.merge(one, other)
    assert merged.n_missing_entries_ == np.isnan(holes).sum() == dca.merge(other, other).n_missing_entries_ / 2
    assert np.isfinite(merged.impute(holes)).all()
    later = streamed([with_holes(last)])  # has a model of its own: that of the first one stays
    assert (later.completion_mean_ != other.completion_mean_).any()
    np.testing.assert_array_equal(dca.merge(other, later).completion_mean_, other.completion_mean_)
    after_fit = dca.NMF(4).fit(with_holes(X)).partial_fit(holes)
    assert after_fit.n_missing_entries_ == np.isnan(with_holes(X)).sum() + np.isnan(holes).sum()
