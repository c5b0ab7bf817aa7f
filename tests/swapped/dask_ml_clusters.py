import dask.array as da
import numpy as np
from dask_ml.cluster import KMeans  # instead: from dask_dca import GaussianMixture

rng = np.random.default_rng(0)
X = da.from_array(
    np.repeat([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]], 100, axis=0) + rng.standard_normal((300, 2)), chunks=100
)
model = KMeans(n_clusters=3)  # instead: model = GaussianMixture(3, "tied-spherical")
model.fit(X)
print(model.cluster_centers_)  # instead: print(model.means_)
labels = model.predict(X).compute()
assert len(set(labels[::100].tolist())) == 3
