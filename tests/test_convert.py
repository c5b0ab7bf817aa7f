"""Matrix Market and docword files become stores that models read."""

import gzip

import numpy as np
import pytest
import zarr
from scipy import io, sparse

import dask_dca as dca
from dask_dca import convert
from dask_dca.convert import convert_documents
from dask_dca.engine.passes import Run
from dask_dca.engine.rows import as_rows
from dask_dca.engine.sampling import fetch_rows
from dask_dca.errors import DCAError, InvalidInputError
from dask_dca.inputs import open_data
from tests.models.lda.data import planted_documents

X, _ = planted_documents(90, 30, 3)


def docword(path, matrix, head=None):
    rows, columns = matrix.nonzero()
    lines = [f"{i + 1} {j + 1} {int(c)}" for i, j, c in zip(rows, columns, matrix.data, strict=True)]
    text = "\n".join([*map(str, head or (*matrix.shape, matrix.nnz)), *lines]) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


@pytest.mark.parametrize(
    ("lines", "name"), [(1, "docword.txt"), (7, "docword.txt.gz"), (100, "docword.txt.gz"), (10**6, "docword.txt")]
)
def test_docword_files_are_read_in_pieces(tmp_path, monkeypatch, lines, name):
    monkeypatch.setattr(convert, "_LINES_PER_READ", lines)
    given = sparse.vstack(
        [sparse.csr_array((2, 30)), X[:20], sparse.csr_array((3, 30)), X[20:40], sparse.csr_array((1, 30))],
        format="csr",
    )
    (tmp_path / "vocab.txt").write_text("\n".join(f"word{j}" for j in range(30)) + "\n")
    target = str(tmp_path / "documents.zarr")
    done = convert_documents(docword(tmp_path / name, given), target, vocabulary=str(tmp_path / "vocab.txt"))
    assert done == (46, 30, given.nnz)
    rows = as_rows(open_data(target).matrix)
    np.testing.assert_array_equal(fetch_rows(rows, None, Run()), given.toarray())
    assert rows.feature_names[29] == "word29"
    model = dca.LatentDirichletAllocation(3, max_iter=1).fit(target)
    assert set(model.get_anchor_words()) <= {f"word{j}" for j in range(30)}


@pytest.mark.parametrize("transpose", [False, True])
def test_matrix_market_files_are_read(tmp_path, transpose):
    io.mmwrite(tmp_path / "x.mtx", sparse.coo_array(X.T if transpose else X))
    target = str(tmp_path / "x.zarr")
    convert_documents(str(tmp_path / "x.mtx"), target, transpose=transpose)
    np.testing.assert_array_equal(fetch_rows(as_rows(target), None, Run()), X.toarray())
    with pytest.raises(DCAError, match="exists"):
        convert_documents(str(tmp_path / "x.mtx"), target)
    assert zarr.open_group(target, mode="r")["X"].attrs["shape"] == [90, 30]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,4\n", "neither a Matrix Market file .* nor a docword file"),
        ("2\n3\n2\n2 1 1\n1 1 1\n", "must list documents 1 to 2 in order"),
        ("2\n3\n1\n1 4 1\n", "words outside 1 to 3"),
        ("2\n3\n1\n3 1 1\n", "must list documents 1 to 2"),
        ("2\n3\n5\n1 1 1\n", "has 1 entries where its header says 5"),
        ("2\n3\n1\n1 1\n", "not document, word and count"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 9\n1 1 1.0\n", "can't be read as a Matrix Market file"),
    ],
)
def test_broken_files_are_refused_and_leave_nothing(tmp_path, text, message):
    (tmp_path / "bad.txt").write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        convert_documents(str(tmp_path / "bad.txt"), str(tmp_path / "out.zarr"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.txt"]
    with pytest.raises(InvalidInputError, match="there is no file"):
        convert_documents(str(tmp_path / "missing"), str(tmp_path / "out.zarr"))


def test_vocabularies_must_fit(tmp_path):
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(InvalidInputError, match="has 2 words, and the documents have 30 columns"):
        convert_documents(
            docword(tmp_path / "d.txt", X), str(tmp_path / "o.zarr"), vocabulary=str(tmp_path / "vocab.txt")
        )
    with pytest.raises(InvalidInputError, match="transpose=True is for Matrix Market"):
        convert_documents(docword(tmp_path / "d.txt", X), str(tmp_path / "o.zarr"), transpose=True)
