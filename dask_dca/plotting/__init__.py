"""Pictures of anchors and of what certifies them. Needs matplotlib: `pip install "dask-dca[plot]"`."""

from __future__ import annotations

from dask_dca.plotting.certificate import plot_coverage, plot_votes
from dask_dca.plotting.fields import plot_coefficients, plot_spectra
from dask_dca.plotting.plane import plot_plane
from dask_dca.plotting.summary import plot_summary

__all__ = ["plot_coefficients", "plot_coverage", "plot_plane", "plot_spectra", "plot_summary", "plot_votes"]
