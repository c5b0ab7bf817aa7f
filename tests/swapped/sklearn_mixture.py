import numpy as np
from sklearn.mixture import GaussianMixture

rng = np.random.default_rng(0)
X = np.repeat([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]], 100, axis=0) + rng.standard_normal((300, 2))
model = GaussianMixture(
    3, covariance_type="full", n_init=5
)  # instead: model = GaussianMixture(3, covariance_type="full")
labels = model.fit_predict(X)
print(model.weights_, model.means_, model.precisions_, model.lower_bound_, model.converged_)
best = min((GaussianMixture(k, random_state=0).fit(X) for k in (2, 3)), key=lambda fit: fit.bic(X))
assert best.n_components == 3
near = GaussianMixture(3, means_init=model.means_)
assert len(set(near.fit(X).predict(X)[::100])) == 3
new, components = model.sample(10)
