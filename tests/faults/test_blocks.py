"""Blocks that are not what Dask was told: the right answer, or one error that names the block and both shapes."""

import warnings

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import dask_dca as dca
from dask_dca.engine.entry import Declared, check_blocks
from dask_dca.engine.passes import Pass, Run, run_pass
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows
from dask_dca.engine.types import Halo
from dask_dca.errors import InvalidInputError, NotFiniteError, PerformanceWarning

RNG = np.random.default_rng(0)
X = RNG.poisson(3.0, (48, 6)) + 4.0 * np.eye(6)[np.arange(48) % 6]
MODELS = {
    "NMF": lambda: dca.NMF(2),
    "GaussianMixture": lambda: dca.GaussianMixture(2, max_iter=1),
    "GaussianHMM": lambda: dca.GaussianHMM(2, max_iter=1),
    "KalmanFilter": lambda: dca.KalmanFilter(2, max_iter=1),
    "LatentDirichletAllocation": lambda: dca.LatentDirichletAllocation(2, max_iter=1),
    "SubspaceClustering": lambda: dca.SubspaceClustering(2),
}
METHODS = {
    "NMF": ("transform", "reconstruction_err"),
    "GaussianMixture": ("predict", "score"),
    "GaussianHMM": ("predict", "score"),
    "KalmanFilter": ("predict", "loglikelihood"),
    "LatentDirichletAllocation": ("transform", "score"),
    "SubspaceClustering": ("predict",),
}
CHUNKS = [(16, 6), (16, 3)]


def big_endian(form):
    def convert(block):
        found = form(block)
        found.data = found.data.astype(">f8")
        return found

    return convert


def half(block):
    found = sparse.csr_array(block)
    found.data = found.data.astype(np.float16)
    return found


def read_only(block):
    found = block.copy()
    found.flags.writeable = False
    return found


def masked(block):
    found = np.ma.array(block, mask=False)
    found[1, 1] = np.ma.masked
    return found


def not_finite(value):
    def spoil(block):
        found = block.copy()
        found[1, 1] = value
        return found

    return spoil


SAME = {  # other forms of the same numbers
    "masked, of nothing": lambda block: np.ma.array(block, mask=False),
    "masked, no mask": np.ma.asarray,
    "masked integers": lambda block: np.ma.array(block.astype(int)),
    "csr": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "coo": sparse.coo_array,
    "bsr": sparse.bsr_array,
    "dia": sparse.dia_array,
    "lil": sparse.lil_matrix,
    "dok": sparse.dok_array,
    "big-endian csr": big_endian(sparse.csr_array),
    "big-endian csc": big_endian(sparse.csc_array),
    "big-endian coo": big_endian(sparse.coo_matrix),
    "csr of float16": half,
    "np.matrix": np.asmatrix,
    "DataFrame": pd.DataFrame,
    "list": lambda block: block.tolist(),
    "order F": np.asfortranarray,
    "read-only": read_only,
    "strided": lambda block: np.repeat(block, 2, axis=1)[:, ::2],
    "big-endian": lambda block: block.astype(">f8"),
    "float16": lambda block: block.astype(np.float16),
    "float32": lambda block: block.astype(np.float32),
    "longdouble": lambda block: block.astype(np.longdouble),
    "int8": lambda block: block.astype(np.int8),
    "uint64": lambda block: block.astype(np.uint64),
}
OTHER = {  # other numbers, of the declared shape: as the same numbers in memory
    "bool": lambda block: block > 3,
    "NaN": not_finite(np.nan),
    "infinity": not_finite(np.inf),
    "masked entry": masked,
    "negative": not_finite(-1.0),
    "zeros": lambda block: block * 0.0,
}
WRONG = {  # what is said of the block, beside what was declared
    "fewer rows": (lambda block: block[block[:, 0] > 3], r"its shape is \(\d+, {p}\)"),
    "no rows": (lambda block: block[:0], r"its shape is \(0, {p}\)"),
    "more rows": (lambda block: np.vstack([block, block]), r"its shape is \(32, {p}\)"),
    "fewer columns": (lambda block: block[:, :2], r"its shape is \(16, 2\)"),
    "more columns": (lambda block: np.hstack([block, block]), r"its shape is \(16, \d+\)"),
    "transposed": (lambda block: block.T, r"its shape is \({p}, 16\)"),
    "1-D": (lambda block: block[:, 0], r"its shape is \(16,\)"),
    "3-D": (lambda block: block[None], r"its shape is \(1, 16, {p}\)"),
    "scalar": (lambda block: block.sum(), r"its shape is \(\)"),
    "sparse, fewer rows": (lambda block: sparse.csr_array(block)[:9], r"its shape is \(9, {p}\)"),
    "sparse, 1-D": (lambda block: sparse.coo_array(block[0]), r"its shape is \({p},\)"),
    "None": (lambda block: None, "a NoneType: .* dtype object"),
    "ragged": (lambda block: [[1.0, 2.0], [3.0]], "a list: .* inhomogeneous"),
    "complex": (lambda block: block + 1j, "Complex data not supported: dtype complex128"),
    "complex, sparse": (lambda block: sparse.csr_array(block + 1j), "Complex data not supported: dtype complex128"),
    "complex, masked": (lambda block: np.ma.array(block + 1j), "Complex data not supported: dtype complex128"),
    "object": (lambda block: block.astype(object), "real numbers; received dtype object"),
    "text": (lambda block: block.astype(str), "real numbers; received dtype <U"),
    "bytes": (lambda block: block.astype(bytes), "real numbers; received dtype .S"),
    "datetime": (lambda block: block.astype("M8[s]"), "real numbers; received dtype datetime64"),
    "timedelta": (lambda block: block.astype("m8[s]"), "real numbers; received dtype timedelta64"),
    "records": (lambda block: block.astype([("a", float)]), "real numbers; received dtype"),
    "DataFrame of text": (lambda block: pd.DataFrame(block).astype(str), "a DataFrame: .* received dtype"),
}


def spoilt(fault, chunks=(16, 6), declared=np.float64):
    """A Dask array of which only the second block of rows is not as declared."""

    def spoil(block, block_id):
        return fault(block) if block_id[0] == 1 else block

    given = da.from_array(X.astype(declared), chunks=chunks)
    return given.map_blocks(spoil, dtype=declared, meta=np.empty((0, 0), declared))


def in_memory(fault, chunks):
    """The same numbers as one array."""
    found = X.copy()
    for left in range(0, 6, chunks[1]):
        part = fault(found[16:32, left : left + chunks[1]])
        found[16:32, left : left + chunks[1]] = np.ma.filled(part, np.nan)
    return found


def outcome(function, *args):
    """What came out: the bits of every number, or the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so little data
        try:
            found = function(*args)
        except dca.errors.DCAError as error:
            return type(error), str(error)
    parts = vars(found) if hasattr(found, "get_params") else {"": found}
    return {
        name: np.asarray(value).tobytes()
        for name, value in parts.items()
        if not name.startswith("_") and isinstance(value, np.ndarray | float | np.floating)
    }


def fit(name):
    return lambda given: MODELS[name]().fit(given)


@pytest.fixture(scope="module")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: MODELS[name]().fit(X) for name in MODELS}


@pytest.fixture(autouse=True)
def _here():
    with dask.config.set(scheduler="sync"):
        yield


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("fault", SAME)
def test_other_forms_of_the_same_numbers_are_the_same(fault, fitted):
    given = spoilt(SAME[fault], (16, 3))
    np.testing.assert_array_equal(fetch_rows(as_rows(given), None, Run()), X)
    name = list(MODELS)[list(SAME).index(fault) % len(MODELS)]  # each model takes some of them
    model = fitted[name]
    assert outcome(fit(name), given) == outcome(lambda: model)
    for method in METHODS[name]:
        plain = np.asarray(getattr(model, method)(da.from_array(X, chunks=(16, 3))))
        np.testing.assert_array_equal(np.asarray(getattr(model, method)(given)), plain)


@pytest.mark.parametrize(
    ("name", "fault"),  # by turns: each model takes half of them
    [(name, fault) for i, name in enumerate(MODELS) for j, fault in enumerate(OTHER) if (i + j) % 2],
)
def test_other_numbers_are_taken_as_they_are(name, fault):
    given = outcome(fit(name), spoilt(OTHER[fault]))
    assert given == outcome(fit(name), in_memory(OTHER[fault], (16, 6)))


@pytest.mark.parametrize("fault", WRONG)
def test_blocks_that_are_not_as_declared_are_named(fault, fitted):
    spoil, match = WRONG[fault]
    chunks = CHUNKS[list(WRONG).index(fault) % 2]  # whole rows and parts of them in turn
    given, p = spoilt(spoil, chunks), chunks[1]
    pattern = (
        rf"^the block of rows 16 to 31, columns (0 to {p - 1}|3 to 5), is not what was declared, of shape \(16, {p}\) "
        "and dtype float64: .*" + match.replace("{p}", str(p))
    )
    for name, model in fitted.items():
        calls = [MODELS[name]().fit, *(getattr(model, method) for method in METHODS[name])]
        for call in calls:
            with pytest.raises(InvalidInputError, match=pattern) as caught:
                np.asarray(call(given))
            assert "\n" not in str(caught.value)
            assert len(str(caught.value)) < 300


@pytest.mark.parametrize("method", ["paper", "robust"])
@pytest.mark.parametrize("name", MODELS)
def test_no_method_reads_a_block_past_its_entry(name, method):
    for fault, what in (("fewer rows", "shape"), ("more columns", "shape"), ("complex", "Complex")):
        model = MODELS[name]().set_params(method=method)
        with pytest.raises(InvalidInputError, match=f"the block of rows 16 to 31.*{what}"):
            model.fit(spoilt(WRONG[fault][0]))


def test_other_functions_of_arrays_name_them_too():
    given = spoilt(WRONG["fewer rows"][0])
    for call in (
        lambda: dca.find_anchors(given, 2),
        lambda: dca.find_anchors(X, 2, Y=given, method="paper"),
        lambda: np.asarray(dca.in_cone(given, X[:3])),
        lambda: dca.in_cone(X[:3], given),
    ):
        with pytest.raises(InvalidInputError, match="the block of rows 16 to 31"):
            call()


def test_nothing_is_computed_before_a_lazy_result_is(fitted):
    from tests.conftest import raise_if_dask_computes

    given = spoilt(WRONG["complex"][0])
    with raise_if_dask_computes():
        for name, model in fitted.items():
            assert isinstance(getattr(model, METHODS[name][0])(given), da.Array)


@pytest.mark.parametrize("declared", [np.float32, np.int64])
def test_numbers_are_no_wider_than_a_declared_floating_dtype_and_never_cut_to_an_integer(declared):
    given = spoilt(lambda block: block + np.float64(0.1), declared=declared)
    whole = np.concatenate([np.asarray(given.blocks[i].compute(), dtype=float) for i in range(3)])
    expected = whole.astype(np.float32) if declared == np.float32 else whole
    assert outcome(fit("NMF"), given) == outcome(fit("NMF"), expected)


def beside(state, window, *columns):
    return float(sum(column[0 : column.shape[0]].sum() for column in columns))


@pytest.mark.parametrize("fault", ["fewer rows", "complex"])
def test_a_neighbours_rows_are_taken_from_a_block_as_declared(fault):
    """Rows are cut from the ends of a block that is itself never worked on."""
    rows = as_rows(spoilt(WRONG[fault][0]))
    with pytest.raises(InvalidInputError, match="the block of rows 16 to 31"):
        run_pass(rows, Pass("sum", beside, sum, Halo(2, 2)), None, blocks=np.array([0]))


@pytest.mark.parametrize("fault", ["1-D", "3-D", "scalar", "None", "ragged"])
def test_blocks_whose_rows_cannot_be_counted_are_named(fault):
    given = spoilt(WRONG[fault][0])
    given = da.Array(given.dask, given.name, ((np.nan,) * 3, (6,)), dtype=float)
    with (
        pytest.warns(PerformanceWarning, match="counted"),
        pytest.raises(InvalidInputError, match=r"the rows of block \(1, 0\) of the Dask array can't be counted"),
    ):
        dca.NMF(2).fit(given)


def test_rows_that_were_counted_once_must_stay_so_many():
    reads = []

    def changing(block, block_id):
        reads.append(block_id)
        return block[: 10 + reads.count((1, 0))] if block_id == (1, 0) else block

    given = da.from_array(X, chunks=(16, 6)).map_blocks(changing, meta=X[:0])
    given = da.Array(given.dask, given.name, ((np.nan,) * 3, (6,)), dtype=float)
    with (
        pytest.warns(PerformanceWarning, match="counted"),
        pytest.raises(InvalidInputError, match=r"the block of rows 16 to 26, .* its shape is \(12, 6\)"),
    ):
        dca.NMF(2).fit(given)


def test_columns_that_are_not_known_are_counted_too():
    given = da.from_array(X, chunks=(16, 6))
    given = da.Array(given.dask, given.name, (given.chunks[0], (np.nan,)), dtype=float)
    with pytest.warns(PerformanceWarning, match="counted"):
        assert outcome(fit_without_filter, given) == outcome(fit("NMF"), X)


def fit_without_filter(given):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        return dca.NMF(2).fit(given)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_masked_arrays_in_memory_and_in_blocks_are_alike(dtype):
    given = np.ma.array(X.astype(dtype), mask=False)
    assert outcome(fit("NMF"), given) == outcome(fit("NMF"), X.astype(dtype))
    given[20, 3] = np.ma.masked
    holed = outcome(fit("NMF"), given)
    assert holed == outcome(fit("NMF"), da.from_array(given, chunks=(16, 6)))
    assert "completion_mean_" in holed
    for held in (given, da.from_array(given, chunks=(16, 6))):
        with pytest.raises(NotFiniteError, match="row 20, column 3"):
            dca.NMF(2, method="paper").fit(held)


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_sparse_data_of_another_byte_order_in_memory(form):
    for name in MODELS:
        assert outcome(fit(name), big_endian(form)(X)) == outcome(fit(name), form(X))


def test_what_is_as_declared_is_not_copied():
    block = X[:16]
    (found,) = check_blocks([block], range(16), Declared((0, 6), np.dtype(float)))
    assert found is block
    rows = sparse.csr_array(block)
    (found,) = check_blocks([rows], range(16), Declared((0, 6), np.dtype(float)))
    assert found is rows
