"""From a zarr array to named anchors: write data chunk by chunk, fit on a local cluster, read the certificate, save.

Run it in any folder: python anchors_of_a_zarr_array.py
"""

import numpy as np
import zarr
from distributed import Client, LocalCluster

import dask_dca as dca

NAMES = ["morning", "noon", "evening", "night"]


def write_days(path, n_days=20_000, hours=96):
    """Write load curves that mix four profiles; one day in a thousand is pure."""
    rng = np.random.default_rng(0)
    t = np.linspace(0, 24, hours)
    profiles = np.stack([np.exp(-(((t - peak) / 3) ** 2)) for peak in (8, 13, 19, 23)])
    array = zarr.create_array(path, shape=(n_days, hours), chunks=(2_000, hours), dtype="float32", overwrite=True)
    for start in range(0, n_days, 2_000):
        shares = rng.dirichlet(np.full(4, 0.7), 2_000)
        shares[rng.random(2_000) < 0.001] = np.eye(4)[rng.integers(4)]
        if start == 0:
            shares[[17, 170, 700, 1_700]] = np.eye(4)
        curves = shares @ profiles + 0.01 * rng.random((2_000, hours))
        array[start : start + 2_000] = curves
    return t[profiles.argmax(axis=1)]


def main():
    peaks = write_days("days.zarr")
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster):
        model = dca.NMF(n_components=4).fit("days.zarr")
        shares = model.transform("days.zarr")  # lazy: nothing is computed before the next line
        print("mean share of each anchor:", shares.mean(axis=0).compute().round(2))
    hours = np.linspace(0, 24, model.n_features_in_)[model.components_.argmax(axis=1)]
    for row, hour in zip(model.anchor_indices_, hours, strict=True):
        print(f"day {row}: {NAMES[int(np.abs(peaks - hour).argmin())]}")
    print(f"coverage {model.coverage_:.3f}, explained {model.explained_variance_ratio_:.3f}")
    model.save("days-model.zarr")
    again = dca.load_model("days-model.zarr")
    print("saved and loaded:", np.array_equal(again.components_, model.components_))


if __name__ == "__main__":
    main()
