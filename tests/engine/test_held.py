"""What learns on a sample: the same in memory and in tasks, with errors and warnings as if it were called here."""

from dataclasses import dataclass

import dask
import dask.array as da
import numpy as np
import pytest

from dask_dca.engine.entry import align_arrays, to_plain
from dask_dca.engine.passes import Pass, Reads, Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import call, call_each, hold_pass, hold_rows
from dask_dca.engine.types import stack_parts
from dask_dca.errors import FewerAnchorsWarning, FloorWarning, InvalidInputError, NotFiniteError, warn

X = np.arange(60.0).reshape(20, 3)
SCHEDULERS = pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
FORMS = pytest.mark.parametrize("chunks", [None, 7])


def given(chunks, values=X):
    return as_rows(values if chunks is None else da.from_array(values, chunks=(chunks, 2)))


def doubled(rows):
    return 2.0 * rows


def total(rows, *more):
    return float(rows.sum()) + sum(more)


def warned(rows, number):
    if number:
        warn(f"call {number}", FloorWarning)
    return number


def refused(rows):
    msg = f"{len(rows)} rows are too few"
    raise InvalidInputError(msg)


def divided(rows):
    return rows / 0.0


@SCHEDULERS
@FORMS
@pytest.mark.parametrize("numbers", [None, np.array([1, 6, 7, 19])])
def test_rows_are_put_together_in_their_order(scheduler, chunks, numbers):
    with dask.config.set(scheduler=scheduler):
        held = hold_rows(given(chunks), numbers, Run(), doubled)
        found = call(Run(), "look", doubled, held)
    np.testing.assert_array_equal(found, 4.0 * (X if numbers is None else X[numbers]))


@FORMS
def test_several_calls_are_one_compute_and_come_back_in_order(computes, chunks):
    held = hold_rows(given(chunks), np.array([0, 11]), Run(), doubled)
    before = len(computes.graphs)
    wanted = 2.0 * X[[0, 11]].sum()
    assert call_each(Run(), "look", total, held, [(i, 2 * i) for i in range(9)]) == [wanted + 3 * i for i in range(9)]
    assert len(computes.graphs) - before == (chunks is not None)


def test_the_sample_is_read_once_and_is_not_all_rows_unless_it_is(computes):
    for numbers, reads in ((np.array([0, 11]), 0), (None, 1)):
        rows = given(7)
        run = Run(reads=Reads(rows.source))
        held = hold_rows(rows, numbers, run, doubled)
        assert (computes.passes[-1], run.n_passes) == ("fetch", reads)
        for _ in range(2):
            call(run, "look", total, held)
            assert computes.passes[-1] == "look"
            assert not [key for key in computes.graphs[-1] if "fetch" in str(key) and "held" not in str(key)]


@SCHEDULERS
@FORMS
def test_warnings_are_given_where_the_fit_was_called(scheduler, chunks):
    held = hold_rows(given(chunks), None, Run(), doubled)
    with dask.config.set(scheduler=scheduler), pytest.warns(FloorWarning, match="call [12]") as told:
        assert call_each(Run(), "look", warned, held, [(0,), (1,), (2,)]) == [0, 1, 2]
    assert [str(one.message) for one in told] == ["call 1", "call 2"]
    assert {one.filename for one in told} == {__file__}
    with pytest.warns(FewerAnchorsWarning, match="again"):  # nothing is kept any more
        warn("again", FewerAnchorsWarning)


@FORMS
def test_errors_are_those_of_the_function(chunks):
    held = hold_rows(given(chunks), None, Run(), doubled)
    with pytest.raises(InvalidInputError, match="20 rows are too few"):
        call(Run(), "look", refused, held)


@FORMS
def test_rows_that_are_not_finite_are_named(chunks):
    values = X.copy()
    values[13, 1] = np.nan
    with dask.config.set(scheduler="synchronous"), pytest.raises(NotFiniteError, match="row 13, column 1"):
        call(Run(), "look", total, hold_rows(given(chunks, values), np.array([2, 13]), Run(), doubled))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@FORMS
def test_the_callers_floating_point_errors_do_not_matter(chunks):
    held = hold_rows(given(chunks), None, Run(), doubled)
    with dask.config.set(scheduler="synchronous"), np.errstate(all="raise"):
        assert np.isinf(call(Run(), "look", divided, held)[1:]).all()


@dataclass(frozen=True)
class Nested:
    parts: tuple
    name: str


def test_arrays_that_were_sent_begin_at_whole_words():
    """NumPy adds others in other pieces, and so to other bits."""
    for n in range(1, 9):
        odd = np.frombuffer(bytes(n) + np.arange(800.0).tobytes(), dtype=np.float64, offset=n)
        value = Nested(([odd], {"a": (odd, 1)}), "x")
        found = align_arrays(value)
        assert (found is value) == (n == 8)
        for array in (found.parts[0][0], found.parts[1]["a"][0], align_arrays(odd)):
            assert array.flags.aligned
            np.testing.assert_array_equal(array, np.arange(800.0))
        assert found.name == "x"
        assert to_plain(odd.reshape(4, 200)).flags.aligned


def test_a_pass_can_be_held_too():
    job = Pass("look", lambda state, start, *columns: (np.arange(1) + start, columns[0][:1] * state), stack_parts)
    with dask.config.set(scheduler="synchronous"):
        held = hold_pass(as_rows(da.from_array(X, chunks=(5, 3))), job, 3.0, Run(), lambda found: found[1])
        assert call(Run(), "look", total, held) == 3.0 * X[::5].sum()
