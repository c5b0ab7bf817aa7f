"""
Gene programmes of cells in an anndata store on zarr, read block by block in its sparse format.

Single-cell counts are mostly zeros, and anndata stores them as a zarr group of `data`, `indices` and `indptr`. Workers
read the rows that they need directly from it; neither anndata nor a dense matrix is needed. The counts here are
simulated: four cell types, each with its own genes, and doublets that mix two types. With anndata installed,
`anndata.AnnData(...).write_zarr("cells.zarr")` writes the same store.

Run it in any folder: python cells_of_an_anndata_store.py
"""

import numpy as np
import zarr
from distributed import Client
from scipy import sparse

import dask_dca as dca

MARKERS = {
    "T cell": "CD3D CD3E CD2 IL7R TRAC LTB CD27 CCR7",
    "B cell": "CD79A CD79B MS4A1 CD19 BANK1 IGHM HLA-DRA CD74",
    "monocyte": "LYZ CD14 S100A8 S100A9 FCN1 CST3 VCAN TYROBP",
    "NK cell": "GNLY NKG7 KLRD1 PRF1 GZMB FGFBP2 SPON2 KLRF1",
}
HOUSEKEEPING = [f"RPL{j}" for j in range(3, 39)] + [f"RPS{j}" for j in range(2, 30)]


def made_up_cells(n_cells=4_000, seed=0):
    """Simulate counts of genes in cells; return them, the genes' names, and the mixture of types of each cell."""
    rng = np.random.default_rng(seed)
    own = [genes.split() for genes in MARKERS.values()]
    names = [gene for genes in own for gene in genes] + HOUSEKEEPING
    programmes = np.zeros((len(own), len(names)))
    for kind, genes in enumerate(own):
        programmes[kind, 8 * kind : 8 * kind + len(genes)] = rng.gamma(4.0, size=len(genes))
    programmes[:, 8 * len(own) :] = rng.gamma(2.0, 0.3, len(HOUSEKEEPING))
    programmes /= programmes.sum(axis=1, keepdims=True)
    shares = np.eye(len(own))[rng.integers(len(own), size=n_cells)]
    doublets = rng.random(n_cells) < 0.1
    shares[doublets] = rng.dirichlet(np.ones(len(own)), doublets.sum())
    counts = rng.poisson(rng.gamma(5.0, 30.0, n_cells)[:, None] * (shares @ programmes))
    return sparse.csr_array(counts.astype(np.float32)), names, shares


def write_store(path, counts, names):
    """Write the part of anndata's zarr layout that is needed here."""
    root = zarr.open_group(path, mode="w")
    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    group = root.create_group("X")
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(counts.shape)})
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(counts, name), chunks=(20_000,))
    for name, labels in (("var", names), ("obs", [f"cell{i}" for i in range(counts.shape[0])])):
        frame = root.create_group(name)
        frame.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0"})
        frame.attrs.update({"_index": "_index", "column-order": []})
        held = frame.create_array("_index", shape=(len(labels),), dtype=str)
        held[:] = np.array(labels, dtype=object)
        held.attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})


def main():
    counts, names, truth = made_up_cells()
    write_store("cells.zarr", counts, names)

    with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0"):
        model = dca.LatentDirichletAllocation(n_components=4).fit("cells.zarr")  # cells are documents, genes words
        for anchor, genes in zip(model.get_anchor_words(), model.top_words(6), strict=True):
            [kind] = [kind for kind, markers in MARKERS.items() if anchor in markers.split()] or ["none"]
            print(f"{kind:<9} anchor gene {anchor:<7} {' '.join(genes)}")

        usage = model.transform("cells.zarr").rechunk((1_000, -1))  # lazy: computed block by block as it is written
        store = zarr.open_group("cells.zarr", mode="a")
        shape, dtype = usage.shape, usage.dtype
        target = store.require_group("obsm").create_array("X_programmes", shape=shape, dtype=dtype, chunks=(1_000, 4))
        usage.store(target, lock=False)
        target.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
        store["obsm"].attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})

    found = zarr.open_array("cells.zarr", path="obsm/X_programmes", mode="r")[:]
    single = truth.max(axis=1) == 1.0
    order = [int(found[single & (truth[:, kind] == 1.0)].mean(axis=0).argmax()) for kind in range(4)]
    right = found[single][:, order].argmax(axis=1) == truth[single].argmax(axis=1)
    print(f"cells of one kind whose main programme is that of their kind: {right.mean():.3f}")
    print("usage of programmes is in cells.zarr, at obsm/X_programmes")


if __name__ == "__main__":
    main()
