import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF

rng = np.random.default_rng(0)
X = rng.dirichlet(np.full(3, 0.3), 200) @ rng.random((3, 12))
model = NMF(n_components=3, init="nndsvda", max_iter=400)  # instead: model = NMF(n_components=3, basis="free")
W = model.fit_transform(X)
H = model.components_
print(model.reconstruction_err_)
print(model.get_params()["n_components"])
again = model.inverse_transform(model.transform(X[:5]))
assert np.abs(again - X[:5]).max() < 0.1
digits = load_digits().data  # no row is pure
model = NMF(20, init="nndsvda", max_iter=400)  # instead: model = NMF(20, basis="free")
W = model.fit_transform(digits)
left = np.linalg.norm(digits - W @ model.components_)
