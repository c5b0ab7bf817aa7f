"""K-means on a sample: sweeps, empty clusters, and counts, against sums written out."""

import numpy as np

from dask_dca.models.kmeans import cluster_means, lloyd

ROWS = np.array([[5.0, 5.0], [5.0, 6.0], [5.0, 7.0], [9.0, 9.0]])


def test_an_empty_cluster_gets_the_row_furthest_from_its_own_mean():
    means = cluster_means(ROWS, np.array([0, 0, 0, 0]), 2)
    np.testing.assert_allclose(means, [[6.0, 6.75], [9.0, 9.0]])


def test_centres_that_no_row_is_near_are_not_lost():
    found = lloyd(ROWS, np.array([[5.0, 6.0], [-100.0, -100.0]]))
    assert sorted(np.bincount(found.labels).tolist()) == [1, 3]
    np.testing.assert_allclose(found.centres[found.labels[3]], [9.0, 9.0])
