"""What a pass is, and how passes are run: plain data, which whoever builds graphs and whoever runs them share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dask_dca.engine.halo import Halo
    from dask_dca.engine.resume import Checkpoint

__all__ = ["Pass", "Reads", "Run"]

T = TypeVar("T")


@dataclass(frozen=True)
class Pass(Generic[T]):
    """One sweep: what is done to a block, and how two results become one."""

    name: str  # tasks are called dca-<name>
    block: Callable[..., T]  # (state, first row number, *column chunks) -> value
    merge: Callable[[Sequence[T]], T]  # associative
    halo: Halo | None = None  # with one, the block's function receives a Window in place of the first row number


@dataclass
class Reads:
    """How often the rows of a fit were read, all of them: passes over a sample don't count."""

    source: Any  # the data
    full: int = 0


@dataclass(frozen=True)
class Run:
    """How passes are run."""

    retries: int = 3
    verbose: bool = False
    checkpoint: Checkpoint | None = None  # where finished passes are kept
    reads: Reads | None = None  # counts passes over all rows, those that a checkpoint had kept among them

    @property
    def n_passes(self) -> int:
        """
        How often all rows were read so far.

        Returns
        -------
        int
            Also of a fit that goes on from a checkpoint: as if it had read them itself.
        """
        return 0 if self.reads is None else self.reads.full
