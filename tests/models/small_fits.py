"""One small fit of each of the six models of the paper, for data of a few columns of counts."""

import dask_dca as dca

MODELS = {
    "nmf": lambda: dca.NMF(2),
    "mixture": lambda: dca.GaussianMixture(2, "diag", max_iter=1),
    "hmm": lambda: dca.GaussianHMM(2, max_iter=1),
    "kalman": lambda: dca.KalmanFilter(1, max_iter=1),
    "lda": lambda: dca.LatentDirichletAllocation(2, min_df=1, max_iter=1),
    "subspace": lambda: dca.SubspaceClustering(2),
}
