"""The commands `dask dca ...` and `dask-dca ...`; their implementations are imported when one of them runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import click

from dask_dca import __version__
from dask_dca._registry import MODELS
from dask_dca.cli.commands import (
    OUTPUT,
    ROW_RESULTS,
    array_option,
    cluster_options,
    connection_options,
    count_option,
    data_argument,
    data_arguments,
    features_option,
    json_option,
    lengths_option,
    model_argument,
    parse_image_shape,
    parse_path,
    pop_cluster_options,
    read_arguments,
    rows_arguments,
    seed_option,
    show_progress,
    with_fit_options,
)
from dask_dca.cli.group import Group, command_context, print_line
from dask_dca.models.describe import describe, model_facts, plain, read_description

_DATA: Final = (
    "DATA is a zarr array or group (path or URL), Parquet, a .npy file, a table of numbers (.csv, .tsv), or cells "
    "(.h5ad); a cube is a zarr array of more dimensions, with --features."
)


@click.group("dca", cls=Group)
@click.version_option(__version__, prog_name="dask-dca")
def main() -> None:
    """Latent-variable models of very large matrices by anchors.

    Defaults of options can be set in Dask's configuration, below `dask-dca`. Completion of commands, options, choices
    and files: eval "$(_DASK_DCA_COMPLETE=bash_source dask-dca)"; zsh_source and fish_source for these shells.
    """


class _Fit(Group):
    """The commands of the models, each created on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *(model.room for model in MODELS.values())})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = next((name for name, model in MODELS.items() if model.room == cmd_name), None)
        return _fit_command(found) if found is not None else super().get_command(ctx, cmd_name)


main.add_command(_Fit("fit", help="Fit a model to a matrix and save it.", no_args_is_help=False))
fit: Any = main.commands["fit"]


def _fit_command(kind: str) -> click.Command:
    """Make the command of a model; kind: name of its class."""
    model = MODELS[kind]
    examples = (
        f"dask dca fit {model.room} X.zarr -k 20 -o model.zarr --workers 4",
        f"dask dca fit {model.room} {model.example} -k 8 -o model.zarr",
    )

    @fit.command(model.room, help=f"{model.help}\n\n{_DATA}", examples=examples)
    @with_fit_options(kind)
    @command_context()
    def run(data: str, output: str, **given: Any) -> None:
        from dask_dca.cli import jobs

        cluster = pop_cluster_options(given)
        given["verbose"] = show_progress(given.pop("progress"))
        names = ("array", "features", "lengths", "views", "sample_weight", "overwrite")
        places = {name: given.pop(name) for name in names if name in given}
        # others keep the model's default
        parameters = {name: value for name, value in given.items() if value is not None}
        fitted = jobs.fit(kind, data, output, parameters, cluster, **places)
        click.echo(describe(fitted))
        print_line(f"Saved as {output}")

    return run


@fit.command(
    "library",
    help=f"Name the rows of a library that DATA's rows are mixtures of.\n\n{_DATA}",
    examples=["dask dca fit library pixels.zarr --library minerals.csv -k auto"],
)
@data_argument
@click.option(
    "--library",
    required=True,
    callback=parse_path,
    metavar="LIB.csv",
    help="Known rows, such as spectra, in any of these forms; the first column of a table may hold names.",
)
@count_option("Number of rows to name.")
@array_option
@seed_option
@json_option
@connection_options
@command_context()
def fit_library(data: str, library: str, k: int | str, *, as_json: bool, **given: Any) -> None:
    """Print the rows' numbers and names, and the certificate."""
    from dask_dca.cli import anchors

    cluster = pop_cluster_options(given)
    found = anchors.name_rows(data, library, k, cluster, **given)
    _print(found, anchors.table_of_library, as_json=as_json)


def _print(found: dict[str, Any], table: Callable[[Any], str], *, as_json: bool) -> None:
    click.echo(json.dumps(found, default=plain) if as_json else table(found))


@main.command(
    "transform",
    short_help="Write MODEL's result for each row of DATA.",
    examples=[
        "dask dca transform model.zarr X.zarr -o F.zarr",
        "dask dca transform hmm.zarr frames.npy -o states.csv --what predict --lengths lengths.csv",
        "dask dca transform model.zarr cube.zarr --features band -o maps.zarr",
    ],
)
@model_argument
@data_arguments
@click.option(
    "--what",
    type=click.Choice(ROW_RESULTS),
    help="Which result, by the model's method; by default transform, of mixtures predict_proba, else predict.",
)
@lengths_option
@cluster_options
@command_context()
def transform(model: str, data: str, output: str, **given: Any) -> None:
    """Write MODEL's result for each row of DATA: coefficients, probabilities or states.

    For a cube (--features) the result is written as maps: its other dimensions, and one of the components.
    """
    from dask_dca.cli import jobs

    cluster = pop_cluster_options(given)
    given["progress"] = show_progress(given["progress"])
    shape = jobs.transform(model, data, output, cluster, **given)
    n, k = shape if len(shape) == 2 else (" x ".join(map(str, shape[:-1])), shape[-1])
    print_line(f"{n} rows of {k} numbers written to {output}")


@main.command(
    "score",
    short_help="Print how well MODEL describes DATA.",
    examples=["dask dca score model.zarr held_out.zarr", "dask dca score hmm.zarr frames.npy --lengths 250,350"],
)
@model_argument
@read_arguments
@lengths_option
@connection_options
@command_context()
def score(model: str, data: str, **given: Any) -> None:
    """Print how well MODEL describes DATA, as its method score does: larger is better."""
    from dask_dca.cli import jobs

    cluster = pop_cluster_options(given)
    click.echo(repr(jobs.score(model, data, cluster, **given)))


@main.command(
    "forecast",
    short_help="Write the frames that MODEL predicts after those of DATA.",
    examples=["dask dca forecast model.zarr frames.npy -n 24 -o next.csv"],
)
@model_argument
@data_arguments
@click.option("-n", "--steps", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Frames.")
@lengths_option
@cluster_options
@command_context()
def forecast(model: str, data: str, output: str, **given: Any) -> None:
    """Write the frames that MODEL, a model of sequences, predicts after the last one of DATA."""
    from dask_dca.cli import jobs

    cluster = pop_cluster_options(given)
    del given["progress"]
    n, p = jobs.forecast(model, data, output, cluster, **given)
    print_line(f"{n} frames of {p} numbers written to {output}")


@main.command(
    "find-anchors",
    short_help="Print the rows of DATA whose cone contains the others.",
    help=f"Print the rows of DATA whose cone contains the others, and their certificate.\n\n{_DATA}",
    examples=[
        "dask dca find-anchors X.zarr -k 12",
        "dask dca find-anchors X.zarr -k auto --json",
        "dask dca find-anchors cube.zarr --features band -k 9 -o endmembers.csv",
    ],
)
@rows_arguments
@count_option("Number of anchors.")
@click.option("--method", type=click.Choice(["robust", "paper"]), default="robust", show_default=True)
@count_option("Number of random planes.", "--subproblems", "n_subproblems")
@seed_option
@json_option
@cluster_options
@command_context()
def find_anchors(data: str, *, as_json: bool, **given: Any) -> None:
    """Print the anchors."""
    from dask_dca.cli import anchors

    cluster = pop_cluster_options(given)
    del given["progress"]
    found = anchors.find(data, cluster, **given)
    _print(found, anchors.table_of_anchors, as_json=as_json)


@main.command(
    "in-cone",
    short_help="Find the rows of DATA that lie in a cone.",
    examples=["dask dca in-cone X.zarr model.zarr", "dask dca in-cone X.zarr rays.csv -o inside.npy --exact"],
)
@data_argument
@click.argument("generators", type=click.Path(readable=False))
@click.option("-o", "--output", type=click.Path(readable=False), metavar="OUT.zarr", help=OUTPUT)
@array_option
@features_option
@click.option("--exact", is_flag=True, help="Decide every row, also those that are not proven to be outside.")
@seed_option
@cluster_options
@command_context()
def in_cone(data: str, generators: str, **given: Any) -> None:
    """Find the rows of DATA that lie in the cone of GENERATORS, a matrix or the components of a saved model."""
    from dask_dca.cli import anchors

    cluster = pop_cluster_options(given)
    inside, rows = anchors.inside(data, generators, cluster, **(given | {"progress": show_progress(given["progress"])}))
    print_line(f"{inside} of {rows} rows lie in the cone")


@main.command(
    "convert",
    short_help="Convert word counts to what `fit lda` reads.",
    examples=["dask dca convert docword.nips.txt -o nips.zarr --vocabulary vocab.nips.txt"],
)
@click.argument("source", type=click.Path(readable=False))
@click.option("-o", "--output", required=True, metavar="DOCS.zarr", help="Where the documents are written.")
@click.option("--vocabulary", metavar="FILE", help="A text file with one word per line.")
@click.option("--transpose", is_flag=True, help="Transpose a Matrix Market file of words x documents.")
@click.option("--overwrite", is_flag=True, help="Replace a zarr group at the output path.")
@command_context()
def convert(source: str, output: str, **given: Any) -> None:
    """Convert word counts, a Matrix Market or UCI docword file, to a zarr store that `fit lda` reads."""
    from dask_dca.convert import convert_documents
    from dask_dca.output import check_no_overlap, check_target

    check_target(output, overwrite=given["overwrite"])
    check_no_overlap(output, source)
    documents, words, entries = convert_documents(source, output, **given)
    print_line(f"{documents} documents of {words} words, {entries} counts, written to {output}")


@main.command("info", examples=["dask dca info model.zarr", "dask dca info model.zarr --json"])
@model_argument
@json_option
@command_context()
def info(model: str, *, as_json: bool) -> None:
    """Print a summary of a saved MODEL."""
    found = read_description(model)
    if found is None:
        from dask_dca import store

        loaded = store.load_model(model)
        found = describe(loaded), model_facts(loaded)
    click.echo(json.dumps(found[1], default=plain) if as_json else found[0])


@main.command(
    "report",
    short_help="Write a report of a saved MODEL as an HTML page, or print it.",
    examples=[
        "dask dca report model.zarr",
        "dask dca report model.zarr -o report.html --data X.zarr",
        "dask dca report model.zarr -o report.html --shape 28x28",
    ],
)
@model_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(readable=False),
    metavar="REPORT.html",
    help="Where the page is written; without it, text is printed.",
)
@click.option("--data", metavar="DATA", help="The data, of which a sample is shown.")
@array_option
@features_option
@lengths_option
@click.option(
    "--shape",
    callback=parse_image_shape,
    metavar="LINESxCOLUMNS",
    help="Draw rows as images of this shape, such as 28x28.",
)
@click.option("--title", help="Title of the page.")
@click.option("--date", metavar="TEXT", help="A date to write on the page (none is taken from the clock).")
@click.option("--overwrite", is_flag=True, help="Replace an HTML page at the output path.")
@command_context()
def report(model: str, output: str | None, **given: Any) -> None:
    """Write a saved MODEL as a self-contained HTML page: the result, its certificate, and how it was made.

    Without -o the same is printed as text.
    """
    from dask_dca.cli import jobs

    written = jobs.write_report(model, output, **given)
    if output is None:
        click.echo(written, nl=False)
    else:
        print_line(f"Report of {len(written.encode()):,} bytes written to {output}")


@main.command(
    "demo",
    short_help="Find the minerals in an image mixed from real spectra.",
    examples=["dask dca demo", "dask dca demo -o elsewhere --workers 4"],
)
@click.option("-o", "--output", default="demo", show_default=True, metavar="DIR", help="Folder of the demo's files.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Worker processes.")
@command_context()
def demo(output: str, workers: int) -> None:
    """Find the minerals in an image mixed from real spectra, on a local cluster."""
    from dask_dca.demo import run_demo

    run_demo(output, workers, click.echo)


if __name__ == "__main__":
    main()
