"""S8: topics of very many documents on two worker processes, against one pass that sums the non-zeros."""

from __future__ import annotations

import shutil
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import zarr
from scipy import sparse

from benchmarks.harness import Benchmark, Check, Record, Table, timed
from benchmarks.two_workers import peak_mb
from dask_dca.engine.passes import Pass, run_pass
from dask_dca.engine.rows import as_rows

if TYPE_CHECKING:
    from collections.abc import Callable

_BLOCK = 20_000
_TOPICS = 20
_TABLE = 2**18  # inverse distribution function of each topic


class ManyDocuments(Benchmark):
    """Two worker processes of 2 GB each; documents in a zarr group of csr triples."""

    id = "S8"
    title = "Topics of many documents, 50,000 words, two workers of 2 GB"
    protocol = (
        "Generated documents of about 100 different words from 20 topics of Zipf's frequencies, csr triples in zarr, "
        "compressed as zarr's default. Seconds of fit(20 topics) over those of one pass that reads the blocks and sums "
        "the non-zeros, run in turn; the greatest memory of a worker process over the whole run."
    )
    param_names: ClassVar[list[str]] = ["documents", "max_iter"]
    params: ClassVar = [(1_000_000,), (0, 5)]
    quick_params: ClassVar = {"documents": (2_000,), "max_iter": (1,)}
    tables: ClassVar = [
        Table("Times the sum of the non-zeros", ["documents"], "ratio", columns="max_iter", better="min", digits=1),
        Table("The same in CPU seconds of all processes", ["documents"], "cpu_ratio", "max_iter", "min", 1),
        Table("CPU of the driver's process, share", ["documents"], "driver_share", "max_iter", "min", 2),
        Table("Greatest memory of a worker, MB", ["documents"], "peak", columns="max_iter", better="min", digits=0),
    ]

    folder: str | None = None
    held: int = 0

    def setup(self, documents: int, max_iter: int) -> None:
        if self.held != documents:
            self.close()
            self.folder = tempfile.mkdtemp()
            self.path = write_documents(Path(self.folder) / "documents.zarr", documents, 500 if self.quick else 50_000)
            self.held = documents

    def measure(self, documents: int, max_iter: int) -> Record:
        from distributed import Client, LocalCluster

        import dask_dca as dca

        with (
            warnings.catch_warnings(),
            LocalCluster(2, threads_per_worker=1, memory_limit="2GB", dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            warnings.simplefilter("ignore")
            rows = as_rows(self.path)

            def sum_all() -> float:
                return run_pass(rows, Pass("sum", _sum_block, sum), None)

            def measured(job: Callable[[], Any]) -> tuple[Any, float, float, float]:
                driver, workers = time.process_time(), sum(client.run(time.process_time).values())
                result, seconds = timed(job)
                driver = time.process_time() - driver
                return result, seconds, driver + sum(client.run(time.process_time).values()) - workers, driver

            sum_all()
            total, *first = measured(sum_all)
            model, *own = measured(lambda: dca.LatentDirichletAllocation(_TOPICS, max_iter=max_iter).fit(self.path))
            _, *second = measured(sum_all)
            peaks = client.run(peak_mb)
        assert model.n_documents_ == documents
        reading, cpu, _ = ((a + b) / 2 for a, b in zip(first, second, strict=True))
        return {
            "ratio": own[0] / reading,
            "cpu_ratio": own[1] / cpu,
            "seconds": own[0],
            "sum_seconds": reading,
            "cpu_seconds": own[1],
            "driver_share": own[2] / own[1],
            "sum_cpu_seconds": cpu,
            "passes": model.n_passes_,
            "words": float(total),
            "peak": max(peaks.values()),
            "method": "dask_dca",
        }

    def check(self, records: list[Record]) -> list[Check]:
        limits = (("ratio", 10, "<= 10 times the sum in all", "times"), ("peak", 600, "a worker takes <= 600 MB", "MB"))
        if not records:
            return [Check(must, "not run", None) for _, _, must, _ in limits]
        worst = {value: max(record[value] for record in records) for value, *_ in limits}
        return [Check(must, f"{worst[value]:.1f} {unit}", worst[value] <= most) for value, most, must, unit in limits]

    def close(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def _sum_block(state: None, start: int, *columns: Any) -> float:
    return float(sum(part.sum() for part in columns))


def write_documents(path: Path, n: int, n_words: int) -> str:
    """Documents of two topics each; runs of 20,000 are appended to the arrays."""
    rng = np.random.default_rng(0)
    zipf = 1.0 / np.arange(30, n_words + 30)
    tables = []
    for _ in range(_TOPICS):
        weights = rng.gamma(0.1, 1.0, n_words) * zipf
        steps = np.cumsum(weights / weights.sum())
        tables.append(np.searchsorted(steps, (np.arange(_TABLE) + 0.5) / _TABLE).astype(np.int32))
    table = np.minimum(np.stack(tables), n_words - 1)
    group = zarr.open_group(path, mode="w")
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [n, n_words]})
    arrays = {
        "data": group.create_array("data", shape=(0,), dtype="u1", chunks=(2**20,)),
        "indices": group.create_array("indices", shape=(0,), dtype="i4", chunks=(2**20,)),
    }
    ends = [np.zeros(1, dtype=np.int64)]
    for begin in range(0, n, _BLOCK):
        block = _documents(rng, table, min(_BLOCK, n - begin), n_words)
        for name, array in arrays.items():
            array.append(getattr(block, name).astype(array.dtype))
        ends.append(block.indptr[1:] + ends[-1][-1])
    group.create_array("indptr", data=np.concatenate(ends), chunks=(2**17,))
    return str(path)


def _documents(rng: np.random.Generator, table: np.ndarray, n: int, n_words: int) -> sparse.csr_array:
    lengths = rng.integers(60, 240, n)
    document = np.repeat(np.arange(n), lengths)
    share = rng.random(n)[document]
    pair = rng.integers(_TOPICS, size=(n, 2))[document]
    topic = np.where(rng.random(len(document)) < share, pair[:, 0], pair[:, 1])
    word = table[topic, rng.integers(_TABLE, size=len(document))]
    block = sparse.coo_array((np.ones(len(word)), (document, word)), shape=(n, n_words)).tocsr()
    block.data = np.minimum(block.data, 255)
    return block
