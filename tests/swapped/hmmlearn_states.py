import numpy as np
from hmmlearn import hmm

rng = np.random.default_rng(0)
X = np.concatenate([np.repeat([0.0, 5.0, 2.0], 40)[:, None] + rng.standard_normal((120, 1)) for _ in range(4)])
lengths = [120] * 4
model = hmm.GaussianHMM(n_components=3, covariance_type="diag", n_iter=20, init_params="mc", params="stmc")
model.startprob_ = np.array([1.0, 0.0, 0.0])
model.transmat_ = np.array([[0.95, 0.05, 0.0], [0.0, 0.95, 0.05], [0.0, 0.0, 1.0]])
model.fit(X, lengths)
score, states = model.decode(X, lengths)
print(score, model.monitor_.converged, model.covars_.shape, model.predict_proba(X, lengths)[0])
assert (np.tril(model.transmat_, -1) == 0.0).all()
new, path = model.sample(10, random_state=0)
