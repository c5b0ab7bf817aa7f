"""`find_anchors` with a library of known rows, and with anchors that are known beforehand."""

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dask_dca as dca
from dask_dca.errors import IncompleteLibraryWarning, InvalidInputError, InvalidParameterError, NotFiniteError
from tests.conftest import bits, raise_if_dask_computes
from tests.strategies import chunkings


def scene(seed=0, *, k=5, m=60, p=40, n=1500, noise=0.02, purest=0.7, gain=0.0, offset=0.0):
    """Mixtures, none of them pure, of k rows of a library of smooth curves; the numbers of these rows."""
    rng = np.random.default_rng(seed)
    library = np.exp(0.4 * rng.standard_normal((m, p + 6)).cumsum(axis=1))[:, 6:]
    library /= library.max(axis=1, keepdims=True)
    rows = rng.choice(m, k, replace=False)
    shares = rng.dirichlet(np.full(k, 0.5), 8 * n)
    clean = shares[shares.max(axis=1) <= purest][:n] @ library[rows]
    X = clean + noise * clean.std() * rng.standard_normal(clean.shape)
    return X * np.exp(gain * rng.standard_normal((n, 1))) + offset * rng.random((n, 1)), library, rows


def named(found, rows):
    return len(set(found.indices.tolist()) & set(rows.tolist())) / len(rows)


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize(("gain", "offset"), [(0.0, 0.0), (0.5, 0.0), (0.3, 0.3)])
def test_rows_that_the_data_are_mixtures_of_are_named_without_any_pure_one(noise, gain, offset):
    for seed in range(4):
        X, library, rows = scene(seed, noise=noise, gain=gain, offset=offset)
        found = dca.find_anchors(X, 5, Y=library)
        assert sorted(found.indices.tolist()) == sorted(rows.tolist())
        np.testing.assert_array_equal(found.rows, library[found.indices])
        assert found.offset == (offset > 0.0)
        assert [group.tolist() for group in found.groups] == [[index] for index in found.indices]
        assert found.coverage > 0.85
        assert found.unexplained < 0.01


@pytest.mark.parametrize("offset", [0.0, 0.3])
def test_their_number_is_found(offset):
    counts = []
    for seed in range(4):
        k = 3 + seed
        X, library, rows = scene(seed, k=k, offset=offset)
        found = dca.find_anchors(X, "auto", Y=library)
        counts.append(len(found.indices) - k)
        assert named(found, rows) == 1.0
    assert counts == [0, 0, 0, 0]


def test_a_library_that_lacks_a_row_is_noticed():
    for seed in range(4):
        X, library, rows = scene(seed)
        with pytest.warns(IncompleteLibraryWarning, match="seems to lack a row"):
            found = dca.find_anchors(X, 5, Y=np.delete(library, rows[0], axis=0))
        assert found.unexplained > 0.01


def test_rows_that_cannot_be_told_apart_are_a_group():
    X, library, rows = scene(noise=0.1)
    rng = np.random.default_rng(5)
    copies = library[rows[:2]] * [[2.0], [0.3]]  # at other brightness
    near = library[rows[2]] * (1.0 + 1e-4 * rng.standard_normal(library.shape[1]))
    found = dca.find_anchors(X, 5, Y=np.vstack([library, copies, near]))
    alike = {rows[0]: 60, rows[1]: 61, rows[2]: 62}
    expected = sorted(sorted({row, alike.get(row, row)}) for row in rows.tolist())
    assert sorted(sorted(group.tolist()) for group in found.groups) == expected
    assert all(index == group[0] for index, group in zip(found.indices, found.groups, strict=True))


@pytest.mark.filterwarnings("ignore::dask_dca.errors.IncompleteLibraryWarning")
@pytest.mark.parametrize("seed", range(4))
def test_scaled_copies_are_a_group_without_noise_in_a_library_that_lacks_rows(seed):
    """Both leave the same of the data, up to rounding."""
    rng = np.random.default_rng(seed)
    library = np.exp(0.3 * rng.standard_normal((40, 30)).cumsum(axis=1))
    X = rng.dirichlet(np.ones(4), 5000) @ library[[3, 11, 20, 27]]
    known = np.vstack([library[:20], 2.5 * library[3], 7.0 * library[11]])
    groups = [set(group.tolist()) for group in dca.find_anchors(X, 3, Y=known).groups]
    assert {3, 20} in groups
    assert {11, 21} in groups


def test_where_spans_cannot_tell_cones_do():
    """In as many dimensions as rows any of them span all: those are right whose cone holds the data."""
    rays = np.array([[1.0, 0.05, 0.05], [0.05, 1.0, 0.05], [0.05, 0.05, 1.0]])
    inner = np.array([[1.0, 1.0, 0.5], [0.4, 0.5, 1.0], [1.0, 0.3, 0.4]])
    shares = np.random.default_rng(0).dirichlet(np.full(3, 0.2), 400)
    found = dca.find_anchors(shares @ rays, 3, Y=np.vstack([inner, rays]))
    assert sorted(found.indices.tolist()) == [3, 4, 5]


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_any_chunking_gives_the_same_bits(data):
    X, library, _ = scene(n=300, noise=0.1, offset=0.2)
    whole = dca.find_anchors(X, 5, Y=library)
    chunks = data.draw(chunkings(300)), data.draw(chunkings(40, most=3, empty=False))
    parts = dca.find_anchors(da.from_array(X, chunks=chunks), 5, Y=da.from_array(library, chunks=(7, 40)))
    assert bits(parts) == bits(whole)
    assert [group.tolist() for group in parts.groups] == [group.tolist() for group in whole.groups]


def test_the_order_of_the_library_and_the_scale_of_its_rows_do_not_matter():
    X, library, rows = scene(noise=0.1)
    order = np.random.default_rng(0).permutation(60)
    scales = np.exp(np.random.default_rng(1).standard_normal((60, 1)))
    found = dca.find_anchors(X, 5, Y=(library * scales)[order])
    assert sorted(order[found.indices].tolist()) == sorted(rows.tolist())


def test_nothing_is_computed_before_it_is_asked_for():
    X, library, _ = scene(n=300)
    whole = dca.find_anchors(X, 5, Y=library)
    with raise_if_dask_computes():
        delayed = dca.find_anchors(da.from_array(X, chunks=(70, -1)), 5, Y=library, compute=False)
    assert bits(delayed.compute()) == bits(whole)


def test_a_library_too_large_for_memory_is_refused_before_it_is_read():
    X, library = np.random.default_rng(0).random((200, 33)), da.ones((2**20, 33), chunks=(2**16, 33))
    message = r"1,048,576 rows of 33 features: too many .*method='paper'"
    with raise_if_dask_computes(), pytest.raises(InvalidParameterError, match=message):
        dca.find_anchors(X, 3, Y=library)


def test_unusable_libraries_are_refused():
    X, library, _ = scene(n=300)
    with pytest.raises(InvalidInputError, match="same space"):
        dca.find_anchors(X, 5, Y=library[:, :-1])
    with pytest.raises(InvalidParameterError, match="the 4 rows of Y"):
        dca.find_anchors(X, 5, Y=library[:4])
    library[3, 2] = np.nan
    with pytest.raises(NotFiniteError):
        dca.find_anchors(X, 5, Y=library)


def cone(seed=0, n=600, noise=0.0):
    rng = np.random.default_rng(seed)
    rays = rng.random((5, 12)) + 2.0 * np.eye(5, 12)
    X = np.vstack([rng.dirichlet(np.full(5, 0.4), n) @ rays, rays])
    return X + noise * rng.random(X.shape), rays, np.arange(n, n + 5)


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_known_rows_come_first_and_the_others_are_found_around_them(noise):
    X, rays, anchors = cone(noise=noise)
    found = dca.find_anchors(X, 5, known=[602, 600])
    assert found.indices[:2].tolist() == [602, 600]
    assert set(found.indices.tolist()) == set(anchors.tolist())
    np.testing.assert_array_equal(found.rows, X[found.indices])
    foreign = dca.find_anchors(X[:-1], 5, known=2.5 * rays[4:])  # the row is not in the data
    assert foreign.indices[0] == -1
    np.testing.assert_array_equal(foreign.rows[0], 2.5 * rays[4])
    assert set(foreign.indices[1:].tolist()) == set(anchors[:4].tolist())
    np.testing.assert_array_equal(foreign.rows[1:], X[foreign.indices[1:]])


def test_a_known_row_stays_even_if_it_is_no_anchor():
    X, _, anchors = cone()
    for selection in ("candidates", "votes"):
        found = dca.find_anchors(X, 5, known=[7], selection=selection)
        assert found.indices[0] == 7
        assert found.votes[0] == 0
        assert len(set(found.indices[1:].tolist()) & set(anchors.tolist())) == 4


def test_known_rows_of_a_library_are_among_those_named():
    X, library, rows = scene(noise=0.1)
    first = int(rows[3])
    found = dca.find_anchors(X, 5, Y=library, known=[first])
    assert found.indices[0] == first
    assert sorted(found.indices.tolist()) == sorted(rows.tolist())
    others = np.delete(library, first, axis=0)
    found = dca.find_anchors(X, 5, Y=others, known=library[[first]])
    assert found.indices[0] == -1
    assert sorted(map(tuple, found.rows)) == sorted(map(tuple, library[rows]))


@pytest.mark.parametrize("known", [[604, 601], None])
def test_known_rows_give_the_same_bits_for_any_chunking_and_later(known):
    X, rays, _ = cone(noise=0.02)
    known = rays[:1] if known is None else known
    whole = dca.find_anchors(X, 5, known=known)
    chunked = da.from_array(X, chunks=((100, 0, 1, 504), (5, 7)))
    assert bits(dca.find_anchors(chunked, 5, known=known)) == bits(whole)
    with raise_if_dask_computes():
        delayed = dca.find_anchors(chunked, 5, known=known, compute=False)
    assert bits(delayed.compute()) == bits(whole)


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ([3, 3], "distinct"),
        ([-1], "distinct"),
        ([0.5], "distinct"),
        ([605], "the last one is 604"),
        ([], "row numbers, or rows"),
        (3, "row numbers, or rows"),
        ([0, 1, 2, 3, 4, 5], "ask for at least 6"),
        (np.ones((1, 11)), "12 features and known 11"),
    ],
)
def test_unusable_known_rows_are_refused(known, message):
    X, _, _ = cone()
    with pytest.raises((InvalidInputError, InvalidParameterError), match=message):
        dca.find_anchors(X, 5, known=known)


def test_known_rows_are_for_the_default_method():
    X, _, _ = cone()
    for options in ({"method": "paper"}, {"dim": 4, "solver": "spa"}):
        with pytest.raises(InvalidParameterError, match="method='robust'"):
            dca.find_anchors(X, 5, known=[0], **options)
