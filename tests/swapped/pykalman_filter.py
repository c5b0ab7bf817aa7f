import numpy as np
from pykalman import KalmanFilter

rng = np.random.default_rng(0)
X = np.cumsum(rng.standard_normal((200, 2)), axis=0) + rng.standard_normal((200, 2))
model = KalmanFilter(
    transition_matrices=np.eye(2), observation_matrices=np.eye(2)
)  # instead: model = KalmanFilter.from_parameters(np.eye(2), np.eye(2))
means, covariances = model.filter(X)
smooth, _ = model.smooth(np.ma.masked_invalid(X))
print(model.loglikelihood(X))
mean, covariance = model.filter_update(means[-1], covariances[-1], X[-1])
model = model.em(X, n_iter=3)
print(model.transition_matrices)  # instead: print(model.transition_matrices_)
assert model.smooth(X)[0].shape == (200, 2)
