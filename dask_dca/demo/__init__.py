"""A demonstration on real data: measured spectra of nine minerals, and an image mixed from them.

`run_demo` fits the image on a local cluster like `dask dca fit nmf`, identifies the anchors, and draws a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from shlex import quote
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from dask_dca.errors import ModelFileError
from dask_dca.output import atomic_output, local_path

SHAPE: Final = (200, 200)  # pixels
_PURE_PIXELS: Final = 3  # pure pixels of each mineral
_SMOOTHING: Final = 10.0  # standard deviation of the smoothing of abundance maps, in pixels
_SHARPNESS: Final = 3.0  # contrast of the abundance maps
_NOISE_DEVIATION: Final = 0.005  # standard deviation of the noise, in units of reflectance
_CHUNK_ROWS: Final = 2000  # rows of a chunk
_SEED: Final = 93592


@dataclass(frozen=True)
class Minerals:
    """Reflectance spectra by name."""

    names: list[str]
    spectra: NDArray[np.float32]  # (minerals, bands)
    wavelength_um: NDArray[np.float32]  # (bands,)

    def nearest(self, spectrum: NDArray[np.floating]) -> tuple[str, float]:
        """Find the mineral whose spectrum is nearest in angle.

        spectrum (bands,): of any brightness. Returns the name, and the spectral angle in degrees.
        """
        own = self.spectra.astype(np.float64)
        cosines = own @ spectrum / (np.linalg.norm(own, axis=1) * np.linalg.norm(spectrum))
        best = int(cosines.argmax())
        return self.names[best], float(np.degrees(np.arccos(min(1.0, cosines[best]))))


def load_minerals() -> Minerals:
    """Read the spectra in the package: nine minerals of the USGS spectral library, on 224 bands."""
    with (
        resources.files("dask_dca.demo").joinpath("minerals.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as held,
    ):
        return Minerals(held["names"].tolist(), held["spectra"], held["wavelength_um"])


def abundances(count: int) -> NDArray[np.float64]:
    """Draw smooth abundance maps (pixels, count) that sum to one, with a few pure pixels of each mineral."""
    random = np.random.default_rng(_SEED)
    fields = np.stack(
        [gaussian_filter(random.standard_normal(SHAPE), _SMOOTHING, mode="wrap") for _ in range(count)], axis=-1
    )
    weights = np.exp(_SHARPNESS * fields / fields.std(axis=(0, 1))).reshape(-1, count)
    shares: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    pure = random.choice(len(shares), size=(count, _PURE_PIXELS), replace=False)
    shares[pure] = np.eye(count)[:, None, :]
    return shares


def image_rows(minerals: Minerals) -> Iterator[NDArray[np.float32]]:
    """Iterate over the chunks (rows, bands) of the mixed image, pixels line by line."""
    shares = abundances(len(minerals.names))
    seeds = np.random.SeedSequence(_SEED).spawn(len(shares) // _CHUNK_ROWS)
    for seed, part in zip(seeds, np.split(shares, len(seeds)), strict=True):
        clean = part @ minerals.spectra
        noise = _NOISE_DEVIATION * np.random.default_rng(seed).standard_normal(clean.shape)
        yield np.maximum(clean + noise, 0.0).astype(np.float32)


def write_image(path: str) -> None:
    """Write the image as a zarr array with a row per pixel, replacing an existing one.

    Raises ModelFileError: the path can't be written.
    """
    import zarr

    minerals = load_minerals()
    shape = (SHAPE[0] * SHAPE[1], minerals.spectra.shape[1])
    with atomic_output(path, overwrite=True) as place:
        image = zarr.create_array(
            place, shape=shape, chunks=(_CHUNK_ROWS, shape[1]), dtype=np.float32, dimension_names=("pixel", "band")
        )
        image.attrs.update({"pixels": list(SHAPE), "wavelength_um": minerals.wavelength_um.tolist()})
        for i, rows in enumerate(image_rows(minerals)):
            image[i * _CHUNK_ROWS : (i + 1) * _CHUNK_ROWS] = rows


def run_demo(folder: str, workers: int, print_line: Callable[[str], object]) -> None:
    """Run the demo.

    folder: for image.zarr, model.zarr and demo.png; print_line: called with each line of the result.
    Raises DCAError: the folder can't be written to, or matplotlib is missing.
    """
    from dask_dca.cli import jobs
    from dask_dca.cli.clusters import Cluster
    from dask_dca.models.describe import certificate
    from dask_dca.plotting.canvas import make_figure

    make_figure((1.0, 1.0))  # raises an error first if matplotlib is missing
    place = local_path(folder)
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        msg = f"can't make the folder {folder!r}: {error.strerror}; choose another with -o DIR"
        raise ModelFileError(msg) from error
    image, saved = str(place / "image.zarr"), str(place / "model.zarr")
    minerals = load_minerals()
    print_line(
        f"Writing {SHAPE[0]} x {SHAPE[1]} pixels mixed from the spectra of {len(minerals.names)} minerals: {image}"
    )
    write_image(image)
    k = len(minerals.names)
    print_line(f"Running: dask dca fit nmf {quote(image)} -k {k} -o {quote(saved)} --workers {workers} --overwrite")
    model = jobs.fit("NMF", image, saved, {"n_components": k}, Cluster(workers=workers), overwrite=True)
    names = []
    print_line(f"{'row':>6}   {'pixel':<10} {'nearest mineral':<16} {'angle':>7}   vote share (95 % bounds)")
    for i, row in enumerate(model.anchor_indices_):
        name, angle = minerals.nearest(model.components_[i])
        names.append(name)
        low, high = model.vote_confidence_[i]
        pixel = f"{row // SHAPE[1]}, {row % SHAPE[1]}"
        share = f"{model.vote_share_[i]:.3f} ({low:.3f} to {high:.3f})"
        print_line(f"{row:>6}   {pixel:<10} {name:<16} {angle:>6.2f}°   {share}")
    print_line(f"{len(set(names))} of the {k} minerals were found.")
    for line in certificate(model):
        print_line(line)
    _draw(model, image, place / "demo.png", names, minerals.wavelength_um)
    print_line(f"Picture: {place / 'demo.png'}")


def _draw(model: Any, image: str, path: Path, names: list[str], wavelengths: Any) -> None:
    import zarr

    from dask_dca.engine.files import scratch_folder
    from dask_dca.plotting import plot_summary

    pixels = zarr.open_array(image, mode="r")
    drawn = plot_summary(
        model, pixels, shape=SHAPE, feature_axis=wavelengths, feature_label="wavelength (µm)", labels=names
    )
    with scratch_folder(path) as folder:
        drawn.savefig(folder / path.name, dpi=110)
        (folder / path.name).replace(path)
