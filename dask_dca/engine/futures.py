"""Data that a cluster holds: whether those who compute can reach them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask_dca.engine.stores import is_a
from dask_dca.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["refuse_closed", "refuse_elsewhere", "refuse_promises"]


def refuse_promises(X: Any) -> None:
    """
    Raise an error for an object that will be data, of a shape that nobody knows.

    Parameters
    ----------
    X : object
        Anything.

    Raises
    ------
    InvalidInputError
        A `dask.delayed` object, or a future.
    """
    if is_a(X, "dask", "Delayed") or is_a(X, "distributed", "Future"):
        msg = (
            f"a {type(X).__name__} has no known shape; pass dask.array.from_delayed(X, shape=(n, p), dtype=float), "
            "or its value"
        )
        raise InvalidInputError(msg)


def refuse_closed(X: Any) -> None:
    """
    Raise an error for a Dask array whose chunks were kept by a client that is closed.

    Parameters
    ----------
    X : dask.array.Array
        The array.

    Raises
    ------
    InvalidInputError
        They are lost.
    """
    for client in _clients(X):
        if client.status == "closed":
            msg = "X was persisted by a Dask client that is closed, so its chunks are lost; make X again, or load it"
            raise InvalidInputError(msg)


def refuse_elsewhere(X: Any, active: Any) -> None:
    """
    Raise an error for a Dask array whose chunks are on another cluster than that which computes.

    Parameters
    ----------
    X : object
        The data.
    active : distributed.Client or None
        The client that computes.

    Raises
    ------
    InvalidInputError
        They are.
    """
    for client in _clients(X):
        if active is None or _scheduler(client) != _scheduler(active):
            msg = (
                f"X was persisted on the cluster of {client.scheduler.address}, and another one computes; compute "
                "there: with client.as_current(), or call X.compute() there first"
            )
            raise InvalidInputError(msg)


def _clients(X: Any) -> Iterator[Any]:
    """Clients of the futures among an array's chunks: one of each layer that holds any."""
    for layer in getattr(getattr(X, "dask", None), "layers", {}).values():
        if is_a(layer, "dask.highlevelgraph", "MaterializedLayer"):
            first: Any = next(iter(layer.values()), None)
            if is_a(first, "distributed", "Future"):
                yield first.client


def _scheduler(client: Any) -> Any:
    return client.scheduler_info(n_workers=0).get("id")
