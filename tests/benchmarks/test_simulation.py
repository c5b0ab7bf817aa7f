"""The simulated cluster does what arithmetic by hand says where that is possible."""

from dataclasses import replace

import pytest

from benchmarks.simulation import Pace, simulate

PACE = Pace(latency=0.05, connection=1e8, byte=1e-9, block=0.01, message=1e6, task=0.0)
READ, WORK = 0.05 + 1e7 / 1e8, 1e7 * 1e-9 + 0.01  # of a block of 10 MB


def test_one_block():
    assert simulate(PACE, 1, 1e7, 1).seconds == pytest.approx(READ + WORK)
    slow = simulate(replace(PACE, task=0.2), 1, 1e7, 1)
    assert slow.seconds == pytest.approx(0.2 + READ + 0.2 + 0.2)  # free, work begun (and soon done), value there


def test_reading_hides_the_work():
    assert simulate(PACE, 8, 1e7, 1).seconds == pytest.approx(8 * READ + WORK + 7 * 1e6 / 1.25e9)


def test_work_hides_the_reading():
    pace = replace(PACE, byte=1e-7)  # a second a block
    assert simulate(pace, 4, 1e7, 1).seconds == pytest.approx(READ + 4 * 1.01 + 3 * 1e6 / 1.25e9)


def test_workers_share_cores():
    pace = replace(PACE, byte=1e-7, message=0.0)
    apart, shared = (simulate(replace(pace, cores=cores), 4, 1e7, 4).seconds for cores in (None, 2))
    assert (apart, shared) == pytest.approx((READ + 1.01, READ + 2 * 1.01))


def test_the_scheduler_bounds_many_workers():
    pace = replace(PACE, task=1e-3)
    few, many = simulate(pace, 2_000, 1e7, 10), simulate(pace, 2_000, 1e7, 1_000)
    assert few.seconds == pytest.approx(2_000 * READ / 10, rel=0.05)
    assert few.scheduler < 0.2
    assert many.seconds > 2 * 2_000 * 1e-3
    assert many.scheduler > 0.9


def test_a_store_that_all_workers_share():
    pace = replace(PACE, store=2e8)
    assert simulate(pace, 64, 1e7, 16).seconds > 64 * 1e7 / 2e8
