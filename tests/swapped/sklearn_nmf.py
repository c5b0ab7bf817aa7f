import numpy as np
from sklearn.decomposition import NMF

rng = np.random.default_rng(0)
X = rng.dirichlet(np.full(3, 0.3), 200) @ rng.random((3, 12))
model = NMF(n_components=3, init="nndsvda", max_iter=400)  # instead: model = NMF(n_components=3, max_iter=400)
W = model.fit_transform(X)
H = model.components_
print(model.reconstruction_err_)  # instead: print(model.reconstruction_err(X))
print(model.get_params()["n_components"])
again = model.inverse_transform(model.transform(X[:5]))
assert np.abs(again - X[:5]).max() < 0.1
