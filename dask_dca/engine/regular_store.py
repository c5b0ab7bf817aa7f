"""A zarr store in a folder, opened by name: a named pipe among its files makes no reader wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zarr.storage import LocalStore

from dask_dca.engine.local_files import require_regular

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["RegularFiles"]


class RegularFiles(LocalStore):
    """A zarr store in a folder, of which only regular files are read."""

    async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
        """
        Read a file.

        Parameters
        ----------
        key : str
            Its name.
        *args, **kwargs : object
            As zarr's own store takes them.

        Returns
        -------
        zarr.core.buffer.Buffer or None
            The content.
        """
        require_regular(self.root / key)
        return await super().get(key, *args, **kwargs)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[Any]) -> list[Any]:
        """
        Read parts of files.

        Parameters
        ----------
        prototype : object
            As zarr's own store takes it.
        key_ranges : iterable
            Names and ranges of bytes.

        Returns
        -------
        list of zarr.core.buffer.Buffer or None
            The parts.
        """
        wanted = list(key_ranges)
        for key, _ in wanted:
            require_regular(self.root / key)
        return await super().get_partial_values(prototype, wanted)

    def get_sync(self, key: str, **kwargs: Any) -> Any:
        """
        Read a file at once.

        Parameters
        ----------
        key : str
            Its name.
        **kwargs : object
            As zarr's own store takes them.

        Returns
        -------
        zarr.core.buffer.Buffer or None
            The content.
        """
        require_regular(self.root / key)
        return super().get_sync(key, **kwargs)
