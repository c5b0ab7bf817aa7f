"""A fitted model as one self-contained HTML page, and as a few lines of HTML in a notebook."""

from __future__ import annotations

from dask_dca.reporting.page import report

__all__ = ["report"]
