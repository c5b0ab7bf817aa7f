"""Exact sums: any order, any cut, the same bits; and the right value."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_dca.geometry.exact import Total, digits, plain_total, power_of_two, product_total, weighted_total

UNIT = 2.0**-30


def wild(seed: int, n: int, p: int) -> np.ndarray:
    """Numbers over some sixty binary orders of magnitude, of both signs."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, p)) * 2.0 ** rng.integers(-30, 30, size=(n, p))


def cut(n: int, seed: int) -> list[slice]:
    edges = np.sort(np.random.default_rng(seed).integers(0, n + 1, size=4))
    bounds = [0, *edges.tolist(), n]
    return [slice(a, b) for a, b in itertools.pairwise(bounds)]


def merged(totals: list[Total], seed: int) -> np.ndarray:
    order = np.random.default_rng(seed).permutation(len(totals))
    whole = totals[order[0]]
    for i in order[1:]:
        whole = whole + totals[i]
    return whole.value()


@given(seed=st.integers(0, 2**32), n=st.integers(0, 1500))
def test_any_cut_and_order_of_merging_gives_the_same_bits(seed: int, n: int) -> None:
    left, right = wild(seed, n, 3), wild(seed + 1, n, 2)
    weights = np.random.default_rng(seed).uniform(-1, 1, size=(n, 4))
    pieces = cut(n, seed)
    for total in (
        lambda s: plain_total(left[s], UNIT),
        lambda s: weighted_total(weights[s], left[s], UNIT),
        lambda s: product_total(left[s], right[s], UNIT, UNIT),
    ):
        whole = total(slice(None)).value()
        np.testing.assert_array_equal(whole, merged([total(piece) for piece in pieces], seed))


def test_the_sum_is_the_sum_of_the_rounded_numbers() -> None:
    values = wild(3, 400, 2)
    rounded = np.rint(values / UNIT)
    for column, found in enumerate(plain_total(values, UNIT).value()):
        exact = sum((Fraction(x) for x in rounded[:, column]), Fraction(0)) * Fraction(UNIT)
        assert abs(Fraction(found) - exact) <= abs(exact) * Fraction(2) ** -51


def test_products_cancel_exactly() -> None:
    rows = wild(5, 300, 2)
    both, signs = np.vstack([rows, rows]), np.repeat([1.0, -1.0], 300)[:, None]
    np.testing.assert_array_equal(product_total(both, signs * both, UNIT, UNIT).value(), np.zeros((2, 2)))


def test_a_gram_matrix_is_symmetric_and_close_to_the_product_of_floats() -> None:
    rows = np.random.default_rng(0).normal(size=(20_000, 5))
    unit = np.full(5, UNIT)
    gram = product_total(rows, rows, unit, unit).value()
    np.testing.assert_array_equal(gram, gram.T)
    np.testing.assert_allclose(gram, rows.T @ rows, rtol=0, atol=1e-6)


def test_weights_are_rounded_to_their_own_grid() -> None:
    found = weighted_total(np.array([[1 / 3]]), np.array([[3.0]]), UNIT).value()
    assert abs(found[0, 0] - 1.0) <= 3 * 2.0**-25


def test_many_large_sums_do_not_overflow_the_digits() -> None:
    one = plain_total(np.full((1000, 1), 2.0**40 - 1), 1.0)
    total = one
    for _ in range(20):
        total = total + total
    assert total.value()[0] == (2.0**40 - 1) * 1000 * 2**20


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_numbers_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        digits(np.array([1.0, bad]), 1.0)


def test_a_power_of_two_is_its_own_unit() -> None:
    np.testing.assert_array_equal(power_of_two([1.0, 1.5, 2.0, 2.0**-1074]), [1.0, 2.0, 2.0, 2.0**-1074])


def test_sums_of_the_greatest_digits_over_many_rows_are_exact() -> None:
    """All products as large as they can be, and of one sign: float64 alone would lose their last bits."""
    n, most, weight = 70_001, 2**19 - 1, 2**24 - 1
    rows = np.full((n, 1), float(most))
    found = weighted_total(np.full((n, 1), weight * 2.0**-24), rows, 1.0)
    assert found.value()[0, 0] == float(Fraction(n * most * weight, 2**24))
    parts = [int(part) for part in product_total(rows, rows, 1.0, 1.0).parts[:, 0, 0]]
    assert sum(part << (20 * level) for level, part in enumerate(parts)) == n * most**2
    parts = [int(part) for part in found.parts[:, 0, 0]]
    assert sum(part << (20 * level) for level, part in enumerate(parts)) == n * most * weight


def test_one_number_in_other_digits_has_the_same_value() -> None:
    """Half of a digit may have been carried or not; beyond 2**53 the value is rounded, and must be so only once."""
    one, other = (
        Total(np.array([[low], [middle], [2.0**40]]), 1.0) for low, middle in ((2.0**19, 128.0), (-(2.0**19), 129.0))
    )
    assert one.value()[0] == other.value()[0]


def test_a_number_may_be_the_unit_of_one_side() -> None:
    rows = np.arange(12.0).reshape(4, 3)
    found = product_total(rows, rows, np.array([0.5, 0.25, 1.0]), 0.25).value()
    np.testing.assert_array_equal(found, rows.T @ rows)


@given(seed=st.integers(0, 2**32), n=st.integers(0, 1500))
def test_weights_of_no_bits_are_signs_and_give_the_same_sums(seed: int, n: int) -> None:
    signs = np.random.default_rng(seed).integers(-1, 2, size=(n, 3)).astype(np.float64)
    values = wild(seed, n, 2)
    fine = weighted_total(signs, values, UNIT).value()
    np.testing.assert_array_equal(weighted_total(signs, values, UNIT, weight_bits=0).value(), fine)
    np.testing.assert_array_equal(
        weighted_total(signs > 0, values, UNIT, weight_bits=0).value(),
        weighted_total(np.maximum(signs, 0.0), values, UNIT).value(),
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_end(bad):
    """A NaN never gets smaller by carrying; the loop once waited for that."""
    weights = np.array([[0.5], [bad]])
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="finite"):
        weighted_total(weights, np.ones((2, 2)), UNIT)


def test_the_largest_integers_are_carried():
    parts = weighted_total(np.ones((2**9, 1)), np.full((2**9, 1), 2.0**19), 1.0)
    assert parts.value().item() == 2.0**28
