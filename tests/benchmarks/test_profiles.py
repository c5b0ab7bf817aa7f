"""A profile's time is shared out to those who called, and none of it is lost."""

import pytest

from benchmarks.profiles import _PACKAGE, by_part, part_of

READ = (f"{_PACKAGE}/engine/stores.py", 1, "read_rows")
LOOK = (f"{_PACKAGE}/geometry/glance.py", 1, "glance")
MATMUL, WRAPPER, ALONE = ("~", 0, "matmul"), ("numpy/x.py", 3, "wrapper"), ("threading.py", 9, "run")


def test_foreign_functions_count_for_the_parts_that_called_them():
    stats = {
        READ: (1, 1, 1.0, 4.0, {}),
        LOOK: (1, 1, 2.0, 8.0, {}),
        WRAPPER: (2, 2, 0.0, 6.0, {READ: (1, 1, 0.0, 2.0), LOOK: (1, 1, 0.0, 4.0)}),
        MATMUL: (3, 3, 9.0, 9.0, {WRAPPER: (2, 2, 6.0, 6.0), LOOK: (1, 1, 3.0, 3.0)}),
        ALONE: (1, 1, 0.5, 0.5, {}),
    }
    spent = by_part(stats)
    # of the wrapper's six seconds reading waited for a third, geometry for two thirds
    assert spent["reading"] == pytest.approx(1.0 + 2.0)
    assert spent["geometry"] == pytest.approx(2.0 + 4.0 + 3.0)
    assert spent["passes"] == pytest.approx(0.5)
    assert sum(spent.values()) == pytest.approx(12.5)


def test_functions_that_call_each_other_end():
    one, two = ("a.py", 1, "one"), ("b.py", 1, "two")
    stats = {one: (1, 1, 1.0, 2.0, {two: (1, 1, 1.0, 1.0)}), two: (1, 1, 1.0, 2.0, {one: (1, 1, 1.0, 1.0)})}
    assert sum(by_part(stats).values()) == pytest.approx(2.0)


def test_parts_are_floors_but_for_reading_and_exact_sums():
    found = [
        part_of((f"{_PACKAGE}/{path}.py", 1, "f")) for path in ("geometry/exact", "engine/passes", "cli", "models/nmf")
    ]
    assert found == ["exact sums", "passes", "models", "models"]
    assert part_of(MATMUL) is None
