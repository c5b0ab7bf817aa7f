"""Tables of polars, eager and lazy: taken as those of pandas are, or a line says what to pass."""

import re

import numpy as np
import pandas as pd
import pytest
import sklearn.feature_extraction.text
import sklearn.preprocessing

import dask_dca as dca
from dask_dca.errors import InvalidInputError, NotNumbersError
from tests.models.small_fits import MODELS

pl = pytest.importorskip("polars")  # not of the lowest versions
pytestmark = [
    pytest.mark.filterwarnings("ignore::dask_dca.errors.FewEntriesWarning"),
    pytest.mark.filterwarnings("ignore::dask_dca.errors.MissingEntriesWarning"),
]

RNG = np.random.default_rng(0)
X = np.rint(5 * np.abs(RNG.standard_normal((80, 4)))) + np.repeat([[9.0, 0, 0, 1], [0, 9, 1, 0]], 40, axis=0)
TABLE = pd.DataFrame(X, columns=list("abcd"))
FRAME = pl.from_pandas(TABLE)
HOLES = TABLE.mask(RNG.random(X.shape) < 0.1)
WORDS = ["dry", "wet"] * 40
KINDS = {  # a table, and that of pandas which it stands for
    "numbers": lambda: (FRAME, TABLE),
    "integers": lambda: (FRAME.cast(pl.UInt8), TABLE),
    "decimals": lambda: (FRAME.with_columns(pl.col("a").cast(pl.Decimal(20, 2))), TABLE),
    "flags": lambda: (FRAME.with_columns(pl.col("a") > 3), TABLE.assign(a=TABLE["a"] > 3)),
    "nulls": lambda: (pl.from_pandas(HOLES), HOLES),
    "integers and nulls": lambda: (pl.from_pandas(HOLES).cast(pl.Int32), HOLES),
}
KNOWN = {"numpy": np, "pandas": pd, "polars": pl, "sklearn": sklearn}


def result(model, data):
    return getattr(model.fit(data), model._per_row)(data)


@pytest.mark.parametrize(
    ("name", "kind"), [*(("mixture", kind) for kind in KINDS), *((name, "flags") for name in MODELS)]
)
def test_every_kind_of_column_is_that_of_pandas(name, kind):
    frame, table = KINDS[kind]()
    np.testing.assert_array_equal(result(MODELS[name](), frame), result(MODELS[name](), table))


@pytest.mark.parametrize("kind", KINDS)
def test_anchors(kind):
    frame, table = KINDS[kind]()
    found, wanted = dca.find_anchors(frame, 2), dca.find_anchors(table, 2)
    np.testing.assert_array_equal(found.indices, wanted.indices)
    if kind == "numbers":
        assert (
            dca.find_anchors(frame, 2, Y=frame[:40]).indices.tolist()
            == dca.find_anchors(X, 2, Y=X[:40]).indices.tolist()
        )
        np.testing.assert_array_equal(dca.in_cone(frame, frame[:4]), dca.in_cone(table, table[:4]))


def test_names_ids_weights_and_lengths():
    wanted = dca.GaussianHMM(2, max_iter=1).fit(TABLE, lengths=[40, 40])
    model = dca.GaussianHMM(2, max_iter=1)
    ids = pl.Series("run", ["a"] * 40 + ["b"] * 40)
    for made in (
        model.fit(FRAME.with_columns(ids), groups="run"),
        model.fit(FRAME.with_columns(ids.cast(pl.Categorical)), groups="run"),
        model.fit(FRAME, groups=ids),
        model.fit(FRAME, lengths=pl.Series([40, 40])),
        model.fit([FRAME[:40], FRAME[40:]]),
    ):
        np.testing.assert_array_equal(made.means_, wanted.means_)
        assert made.feature_names_in_.tolist() == list("abcd")
    weights = pl.Series("w", np.arange(80) % 3)
    for given in (weights, weights.cast(pl.Float32)):
        found = dca.GaussianMixture(2, "diag", max_iter=1).fit(FRAME, sample_weight=given)
        wanted = dca.GaussianMixture(2, "diag", max_iter=1).fit(TABLE, sample_weight=weights.to_numpy())
        np.testing.assert_array_equal(found.means_, wanted.means_)
    with pytest.raises(InvalidInputError, match=r"sample_weight must be finite.*received nan for row 0"):
        dca.NMF(2).fit(FRAME, sample_weight=pl.Series([None, *range(79)]))
    turned, model = FRAME[list("dcba")], dca.NMF(2).fit(FRAME)
    with pytest.raises(InvalidInputError, match=r"order: X\[model\.feature_names_in_\] of a table"):
        model.transform(turned)
    np.testing.assert_array_equal(model.transform(turned[model.feature_names_in_]), model.transform(TABLE))


ADVISED = {  # what is given, what is to be evaluated of the message, and how many columns there are then
    "a query": (lambda: FRAME.lazy(), r"pass (X\.collect\(\))$", 4),
    "tables": (lambda: [FRAME[:40], FRAME[40:]], r"pass (polars\.concat\(X\))$", 4),
    "categories": (
        lambda: FRAME.with_columns(k=pl.Series(WORDS).cast(pl.Categorical)),
        r"(pandas\.get_dummies\(.*\)) for",
        6,
    ),
    "names": (lambda: FRAME.with_columns(k=pl.Series(WORDS).cast(pl.Enum(["dry", "wet"]))), r"pass (.*) to leave", 4),
    "texts": (lambda: FRAME.with_columns(k=pl.Series(WORDS)), r"pass (.*) to leave", 4),
    "texts of numbers": (lambda: FRAME.with_columns(pl.col("a").cast(pl.String)), r"pass (.*)$", 4),
    "documents": (lambda: pl.DataFrame({"t": ["wet cat", "wet dog", "dry dog"] * 20}), r"pass (.*) to count", 4),
    "dates": (lambda: FRAME.with_columns(t=pl.Series(pd.date_range("2024-1-1", periods=80))), r"pass (.*) to leave", 4),
    "spans": (lambda: FRAME.with_columns(t=pl.Series(pd.to_timedelta(np.arange(80), "h"))), r"pass (.*) to leave", 4),
    "vectors": (lambda: pl.DataFrame({"v": X.tolist()}), r"pass (numpy\.stack\(.*\)) for", 4),
    "arrays": (
        lambda: pl.DataFrame({"v": pl.Series(X.tolist(), dtype=pl.Array(pl.Float64, 4))}),
        r"(numpy\.stack\(.*\)) for",
        4,
    ),
    "structs": (lambda: FRAME.select(s=pl.struct("a", "b")), r"pass (.*) for the numbers", 2),
    "wide integers": (lambda: FRAME.cast(pl.Int128), r"pass (X\.cast\(polars\.Float64\))$", 4),
    "a column": (lambda: FRAME["a"], r"data: (X\.to_frame\(\)) for one feature", 1),
    "a row": (lambda: FRAME["a"], r"feature, (X\.to_frame\(\).*) for one row", 80),
}


@pytest.mark.parametrize("kind", ADVISED)
def test_other_columns_are_told_a_line_that_works(kind):
    make, pattern, width = ADVISED[kind]
    with pytest.raises(InvalidInputError) as raised:
        dca.GaussianMixture(1, "diag").fit(make())
    found = re.search(pattern, str(raised.value))
    assert found, str(raised.value)
    assert dca.GaussianMixture(1, "diag").fit(eval(found[1], {"X": make(), **KNOWN})).n_features_in_ == width


def test_queries_in_other_places():
    with pytest.raises(NotNumbersError, match=r"pass (polars\.collect_all\(X\)), their rows"):
        dca.GaussianHMM(2).fit([FRAME[:40].lazy(), FRAME[40:].lazy()])
    with pytest.raises(InvalidInputError, match=r"pass Y\.collect\(\)$"):
        dca.find_anchors(FRAME, 2, Y=FRAME.lazy())
    with pytest.raises(InvalidInputError, match=r"pass generators\.collect\(\)$"):
        dca.in_cone(FRAME, FRAME[:4].lazy())


def test_symbols_that_are_words():
    frame = pl.DataFrame({"k": ["x", "y", "z", "x"] * 20})
    with pytest.raises(NotNumbersError) as raised:
        dca.CategoricalHMM(2, max_iter=0).fit(frame)
    symbols = eval(re.search(r"pass (sklearn.*)$", str(raised.value))[1], {"X": frame, **KNOWN})
    assert dca.CategoricalHMM(2, max_iter=0).fit(symbols).n_features_in_ == 1
