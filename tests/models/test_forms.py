"""Fitted attributes and row-wise results have the same bits in any form, chunking and scheduler as in memory."""

import numpy as np
import pytest

from benchmarks.chunking_cases import FORMS, MODELS, make_case
from benchmarks.chunkings import COUNTED, WAYS, compared, ways

pytestmark = pytest.mark.filterwarnings("ignore")
SOME = [(list(MODELS)[i % len(MODELS)], form) for i, form in enumerate(FORMS)]


@pytest.mark.parametrize(("name", "form"), SOME)
def test_the_same_bits_as_in_memory(name, form):
    """Each form with a model, and each model with a form; `make soak` has 130 cases of each model, in processes too."""
    number = list(FORMS).index(form) + len(FORMS) * (1 + list(MODELS).index(name))
    case = make_case(name, number, large=False)
    found = compared(case, ways()[WAYS[number % 3]])
    assert not any(found.get(counted) for counted in COUNTED[1:4]), (number, case.dtype, case.parameters, found)
    counts = name == "LatentDirichletAllocation"  # which have no missing entries; elsewhere the paper's method has none
    holes = form == "masked with entries"
    assert bool(found.get("refused alike")) == (holes and (counts or case.parameters.get("method") == "paper"))


def test_forms_hold_the_numbers_of_the_matrix_in_memory():
    for number in range(9, 27):
        case = make_case("KalmanFilter", number, large=False)
        if case.form in ("row chunks", "feature chunks", "unknown chunks", "DataFrame"):
            np.testing.assert_array_equal(np.asarray(case.parts.compute()), np.asarray(case.whole))
