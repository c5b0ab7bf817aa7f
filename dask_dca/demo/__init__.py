"""A demonstration on real data: measured spectra of nine minerals, and an image mixed from them by smooth maps."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.ndimage import gaussian_filter

from dask_dca.output import written_beside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

SHAPE: Final = (200, 200)  # pixels
_PURE: Final = 3  # pixels a mineral that hold nothing else
_SMOOTH: Final = 10.0  # pixels over which an abundance changes
_SHARPNESS: Final = 3.0  # how far one mineral dominates where its map is high
_NOISE: Final = 0.005  # standard deviation, in units of reflectance
_CHUNK: Final = 2000  # rows
_SEED: Final = 93592


@dataclass(frozen=True)
class Minerals:
    """Reflectance spectra by name."""

    names: list[str]
    spectra: NDArray[np.float32]  # (minerals, bands)
    wavelength_um: NDArray[np.float32]  # (bands,)

    def nearest(self, spectrum: NDArray[np.floating]) -> tuple[str, float]:
        """Find the mineral whose spectrum is nearest in angle.

        spectrum (bands,): A spectrum of any brightness. Returns angle: spectral angle between them in degrees.
        """
        own = self.spectra.astype(np.float64)
        cosines = own @ spectrum / (np.linalg.norm(own, axis=1) * np.linalg.norm(spectrum))
        best = int(cosines.argmax())
        return self.names[best], float(np.degrees(np.arccos(min(1.0, cosines[best]))))


def load_minerals() -> Minerals:
    """Read the spectra that come with the package.

    Returns nine minerals of the USGS spectral library, on 224 bands.
    """
    with (
        resources.files("dask_dca.demo").joinpath("minerals.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as held,
    ):
        return Minerals(held["names"].tolist(), held["spectra"], held["wavelength_um"])


def abundances(count: int) -> NDArray[np.float64]:
    """Draw smooth maps that sum to one in every pixel, with a few pure pixels each.

    Returns (pixels, count): share of every mineral in every pixel.
    """
    random = np.random.default_rng(_SEED)
    fields = np.stack(
        [gaussian_filter(random.standard_normal(SHAPE), _SMOOTH, mode="wrap") for _ in range(count)], axis=-1
    )
    weights = np.exp(_SHARPNESS * fields / fields.std(axis=(0, 1))).reshape(-1, count)
    shares: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    pure = random.choice(len(shares), size=(count, _PURE), replace=False)
    shares[pure] = np.eye(count)[:, None, :]
    return shares


def image_rows(minerals: Minerals) -> Iterator[NDArray[np.float32]]:
    """Mix the image, chunk by chunk.

    minerals: what it is mixed from. Returns (rows, bands): reflectance of the next pixels, line by line.
    """
    shares = abundances(len(minerals.names))
    seeds = np.random.SeedSequence(_SEED).spawn(len(shares) // _CHUNK)
    for seed, part in zip(seeds, np.split(shares, len(seeds)), strict=True):
        clean = part @ minerals.spectra
        noise = _NOISE * np.random.default_rng(seed).standard_normal(clean.shape)
        yield np.maximum(clean + noise, 0.0).astype(np.float32)


def write_image(path: str) -> None:
    """Write the image as a zarr array, a pixel a row.

    path: where; a zarr array that is there is replaced.
    Raises ModelFileError: the path can't be written.
    """
    import zarr

    minerals = load_minerals()
    shape = (SHAPE[0] * SHAPE[1], minerals.spectra.shape[1])
    with written_beside(path, overwrite=True) as place:
        image = zarr.create_array(
            place, shape=shape, chunks=(_CHUNK, shape[1]), dtype=np.float32, dimension_names=("pixel", "band")
        )
        image.attrs.update({"pixels": list(SHAPE), "wavelength_um": minerals.wavelength_um.tolist()})
        for i, rows in enumerate(image_rows(minerals)):
            image[i * _CHUNK : (i + 1) * _CHUNK] = rows
