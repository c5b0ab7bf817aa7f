"""What importing loads, and which floor may import which."""

import ast
import pickle
import re
import subprocess
import sys
import tokenize
from functools import cache
from pathlib import Path

import dask.array as da
import pytest

import dask_dca
from tests.contract.entries import ENTRIES, example, fitted

PACKAGE = Path(dask_dca.__file__).parent
FLOORS = ("geometry", "engine", "anchoring", "models")
ROOMS = {
    "nmf": "NMF",
    "mixture": "GaussianMixture",
    "hmm": "GaussianHMM",
    "categorical": "CategoricalHMM",
    "kalman": "KalmanFilter",
    "lda": "LatentDirichletAllocation",
    "subspace": "SubspaceClustering",
}
EXTENDS = {"categorical": "hmm"}  # rooms that are built on another's chains
KERNELS = [  # the statistics of the models: arrays in, arrays out
    PACKAGE / "models" / f"{name}.py"
    for name in (
        *("gaussians", "incomplete_gaussians", "kmeans", "neighbours", "nmf/free", "nmf/rays"),
        *(f"mixture/{name}" for name in ("e_step", "em", "family", "furthest", "leave_one_out", "moves", "search")),
        *("hmm/recursions", "hmm/expectation", "hmm/model", "hmm/shrinkage"),
        *("kalman/system", "kalman/filter", "kalman/scan"),
        *("kalman/start", "kalman/em", "lda/documents", "lda/moves", "lda/topics"),
        *("subspace/landmarks", "subspace/clusters"),
    )
]
LAZY = ("transform", "predict", "predict_proba", "score_samples", "smooth", "filter")
HEAVY = ("distributed", "sklearn", "matplotlib", "dask.array", "numpy", "scipy", "zarr")


def test_importing_is_light():
    """The package and its command load nothing heavy; a model neither distributed nor matplotlib."""
    program = (
        f"import sys, dask_dca, dask_dca.cli.main; print([m for m in {HEAVY!r} if m in sys.modules]);"
        " dask_dca.NMF; print([m for m in ('distributed', 'matplotlib') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["[]", "[]"]


def test_workers_do_not_import_scikit_learn_for_lazy_results():
    """Scikit-learn takes a worker a second. All models in turn, in one process: it names the first that does."""
    graphs = {}
    for name, entry in ENTRIES.items():
        lazy = da.from_array(example(name), chunks=(40, -1))
        methods = [method for method in entry.results if method in LAZY]
        found = [getattr(fitted(name), method)(lazy) for method in methods]
        parts = [part for one in found for part in (one if isinstance(one, tuple) else (one,))]
        graphs[name] = pickle.dumps([dict(part.__dask_graph__()) for part in parts if isinstance(part, da.Array)])
        assert len(graphs[name]) > 1000
    program = (
        "import pickle, sys\n"
        "for name, graph in pickle.load(sys.stdin.buffer).items():\n"
        "    pickle.loads(graph)\n"
        "    assert 'sklearn' not in sys.modules, name\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(graphs), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@cache
def syntax(path):
    """The tree of a file, and all of its nodes."""
    tree = ast.parse(path.read_text())
    return tree, list(ast.walk(tree))


@cache
def imported(path):
    """All modules that a file imports, anywhere in it."""
    found = set()
    for node in syntax(path)[1]:
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}", *(f"{node.module}.{name.name}" for name in node.names)}
    return found


@pytest.mark.parametrize("path", sorted((PACKAGE / "geometry").glob("*.py")), ids=lambda path: path.name)
def test_geometry_is_numpy_and_scipy_only(path):
    allowed = {"numpy", "scipy", "dask_dca", *sys.stdlib_module_names}
    assert {name.partition(".")[0] for name in imported(path)} <= allowed


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: "-".join(path.relative_to(PACKAGE).parts))
def test_kernels_know_nothing_of_dask(path):
    allowed = {"numpy", "scipy", "sklearn", "dask_dca", *sys.stdlib_module_names}
    names = imported(path)
    assert {name.partition(".")[0] for name in names} <= allowed
    kernels = {".".join(("dask_dca", *other.relative_to(PACKAGE).with_suffix("").parts)) for other in KERNELS}
    below = ("dask_dca.geometry", "dask_dca.errors", *kernels)
    assert not {name for name in names if name.startswith("dask_dca.") and not name.startswith(below)} - {
        ".".join(name.split(".")[:-1]) for name in kernels
    }


@pytest.mark.parametrize("floor", FLOORS)
def test_floors_import_only_from_below(floor):
    above = FLOORS[FLOORS.index(floor) + 1 :]
    tops = {path.stem for path in PACKAGE.glob("*") if path.stem not in (*FLOORS, "errors", "__init__", "__pycache__")}
    tops -= {"store", "reporting"} if floor == "models" else set()  # AnchorModel.save, _repr_html_
    for path in (PACKAGE / floor).rglob("*.py"):
        own = {name.split(".")[1] for name in imported(path) if name.startswith("dask_dca.")}
        assert not own & {*above, *tops}, path


def test_the_drawing_of_the_house_is_what_is_imported():
    text = (PACKAGE.parent / "docs/developing/index.md").read_text()
    drawn = dict(re.findall(r"^(\w+)/ +imports ([\w, ]+);", text, re.MULTILINE))
    assert set(drawn) == {"engine", "anchoring", "models", "plotting", "reporting", "cli"}
    folders = {"geometry", *drawn}
    for floor, said in drawn.items():
        may = folders if said == "all of these" else set(said.split(", "))
        own = {
            name.split(".")[1] for path in (PACKAGE / floor).rglob("*.py") for name in imported(path) if name.count(".")
        }
        met = own & folders - {floor} - ({"reporting"} if floor == "models" else set())  # AnchorModel._repr_html_
        assert met <= may, floor
        assert said == "all of these" or met == may, floor


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_holds_all_of_its_model_and_nothing_of_another(room):
    home = PACKAGE / "models" / room
    assert {"estimator.py", "passes.py"} <= {path.name for path in home.iterdir()}
    others = tuple(f"dask_dca.models.{other}" for other in ROOMS if other not in (room, EXTENDS.get(room)))
    for path in home.glob("*.py"):
        assert not {name for name in imported(path) if name.startswith(others)}, path
    for path in (PACKAGE / "models").glob("*.py"):
        assert not {name for name in imported(path) if name.startswith(f"dask_dca.models.{room}")}, path


def test_the_engine_names_no_model():
    words = re.compile(
        rf"\b({'|'.join([*ROOMS.values(), 'hmm', 'lda', 'nmf'])})\b|kalman|mixture|markov", re.IGNORECASE
    )
    for path in (PACKAGE / "engine").glob("*.py"):
        assert not (found := words.search(path.read_text())), (path, found)


LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def lines_of_code(path):
    """Lines that hold more than comments, outside docstrings."""
    with tokenize.open(path) as file:
        tokens = [token for token in tokenize.generate_tokens(file.readline) if token.type not in LAYOUT]
    found = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    for node in syntax(path)[1]:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            found -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(found)


def test_a_module_has_at_most_300_lines_of_code():
    assert {str(path): n for path in PACKAGE.rglob("*.py") if (n := lines_of_code(path)) > 300} == {}


def test_nothing_pickles_or_evaluates():
    for path in PACKAGE.rglob("*.py"):
        assert not {"pickle", "cloudpickle", "joblib"} & {name.partition(".")[0] for name in imported(path)}, path
        calls = {
            node.func.id for node in syntax(path)[1] if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not calls & {"eval", "exec"}, path


def test_a_name_is_of_one_class():
    """Names that modules show to each other; those with an underscore are their own."""
    homes: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in syntax(path)[0].body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert not {name: where for name, where in homes.items() if len(where) > 1}
