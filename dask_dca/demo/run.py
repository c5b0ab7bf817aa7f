"""The demo: write the image, fit it on a local cluster as `dask dca fit nmf` does, name the anchors, draw a picture."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

from dask_dca.cli import jobs
from dask_dca.cli.clusters import Where
from dask_dca.demo import SHAPE, load_minerals, write_image
from dask_dca.engine.files import scratch_folder
from dask_dca.errors import ModelFileError
from dask_dca.models.describe import certificate
from dask_dca.output import local_path
from dask_dca.plotting.canvas import make_figure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def run_demo(folder: str, workers: int, say: Callable[[str], object]) -> None:
    """Run the demo.

    folder: where its files go: image.zarr, model.zarr and demo.png; say: takes each line of the result.
    Raises DCAError: the folder can't be written to, or matplotlib is missing.
    """
    make_figure((1.0, 1.0))  # before all the work: whether there is what draws the picture
    place = local_path(folder)
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        msg = f"can't make the folder {folder!r}: {error.strerror}; choose another with -o DIR"
        raise ModelFileError(msg) from error
    image, saved = str(place / "image.zarr"), str(place / "model.zarr")
    minerals = load_minerals()
    say(f"Writing {SHAPE[0]} x {SHAPE[1]} pixels mixed from the spectra of {len(minerals.names)} minerals: {image}")
    write_image(image)
    k = len(minerals.names)
    say(f"Running: dask dca fit nmf {quote(image)} -k {k} -o {quote(saved)} --workers {workers} --overwrite")
    model = jobs.fit("NMF", image, saved, {"n_components": k}, Where(workers=workers), overwrite=True)
    names = []
    say(f"{'row':>6}   {'pixel':<10} {'nearest mineral':<16} {'angle':>7}   vote share (95 % bounds)")
    for i, row in enumerate(model.anchor_indices_):
        name, angle = minerals.nearest(model.components_[i])
        names.append(name)
        low, high = model.vote_confidence_[i]
        pixel = f"{row // SHAPE[1]}, {row % SHAPE[1]}"
        share = f"{model.vote_share_[i]:.3f} ({low:.3f} to {high:.3f})"
        say(f"{row:>6}   {pixel:<10} {name:<16} {angle:>6.2f}°   {share}")
    say(f"{len(set(names))} of the {k} minerals were found.")
    for line in certificate(model):
        say(line)
    _draw(model, image, place / "demo.png", names, minerals.wavelength_um)
    say(f"Picture: {place / 'demo.png'}")


def _draw(model: Any, image: str, path: Path, names: list[str], wavelengths: Any) -> None:
    import zarr

    from dask_dca.plotting import plot_summary

    pixels = zarr.open_array(image, mode="r")
    drawn = plot_summary(
        model, pixels, shape=SHAPE, feature_axis=wavelengths, feature_label="wavelength (µm)", labels=names
    )
    with scratch_folder(path) as folder:
        drawn.savefig(folder / path.name, dpi=110)
        (folder / path.name).replace(path)
