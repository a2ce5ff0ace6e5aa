"""The cluster's database, for commands that ask it."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from paddock.cli.exits import Failure, Status
from paddock.cli.output import working

if TYPE_CHECKING:
    from orchestrator.cluster.postgres.pool import Access, ClusterDatabase

T = TypeVar("T")


def cluster_access() -> "Access":
    """What the settings say of it. Raises: ConfigError."""
    from orchestrator.cluster.postgres.pool import Access
    from orchestrator.settings.cluster_access import load_access

    found = load_access()
    assert found.cluster is not None  # noqa: S101 - checked with the settings
    assert found.cluster_database is not None  # noqa: S101
    dsn = found.cluster_database.get_secret_value()
    return Access(found.cluster, dsn, found.cluster_database_password_file)


def ask(work: "Callable[[ClusterDatabase], Awaitable[T]]", doing: str) -> T:
    """The result of `work` with the cluster's database."""
    try:
        import orchestrator.cluster.postgres.pool  # noqa: F401
    except ModuleNotFoundError as error:
        raise without_driver(error) from None
    with working(doing):
        return run_now(with_database(work))


def run_now(work: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
    """The result of `work`. Raises: TimeoutError after so many seconds."""
    import asyncio  # not before a command needs it: all commands are loaded together

    return asyncio.run(asyncio.wait_for(work, seconds))


async def with_database(work: "Callable[[ClusterDatabase], Awaitable[T]]") -> T:
    """Likewise, in a loop that runs."""
    from orchestrator.cluster.postgres.pool import ClusterDatabase

    database = ClusterDatabase(cluster_access())
    await database.open()
    try:
        return await work(database)
    finally:
        await database.close()


def without_driver(error: ModuleNotFoundError) -> BaseException:
    """What to raise instead: how to install the driver, if that is what is missing."""
    if error.name != "asyncpg":
        return error
    return Failure(
        "a cluster needs asyncpg, which is not installed here",
        "`pip install 'paddock-server[cluster]'`",
        Status.NOT_INSTALLED,
    )
