"""Connections to the cluster's database: few, each with time-outs for everything."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from orchestrator.cluster.postgres import schema
from orchestrator.cluster.postgres.connection import DatabaseConnection
from orchestrator.cluster.postgres.errors import FAILURES, explained, is_lost, may_be_repeated
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import ClusterUnavailableError

T = TypeVar("T")

MOST_CONNECTIONS = 4
# To one server of the DSN.
_CONNECT_SECONDS = 3.0
_STATEMENT_SECONDS = 5.0
# From the wait for a connection to the commit.
_WORK_SECONDS = 10.0
# The database undoes one of two transactions that wait for each other, and refuses changes on
# connections that were made before a fail-over.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach the database of the cluster with that name.

    `dsn` is a PostgreSQL URL, which may list several servers. `password_file` is read at each
    connection, so that its content may be replaced.
    """

    cluster: str
    dsn: str
    password_file: Path | None = None


class ClusterDatabase:
    """The database of a cluster. It need not be there: each call tries to reach it."""

    def __init__(self, access: Access, seconds: float = _WORK_SECONDS) -> None:
        """`seconds` is the longest that a transaction may take, with the wait for it."""
        self.cluster = access.cluster
        self._options = _options(access, seconds)
        self._seconds = seconds
        self._pool: Any = None

    async def open(self) -> None:
        """Makes the pool, which connects when it is first used. Raises: ConfigError."""
        try:
            self._pool = await asyncpg.create_pool(
                **self._options,
                min_size=0,
                max_size=MOST_CONNECTIONS,
                init=self._check,
                # Nothing of ours leaves a state in a connection.
                reset=_nothing,
            )
        except (ValueError, asyncpg.InterfaceError) as error:
            raise ConfigError(f"PADDOCK_CLUSTER_DATABASE: {error}") from None

    async def close(self) -> None:
        """Closes all connections, also those that do not answer."""
        if self._pool is not None:
            self._pool.terminate()

    async def check(self) -> None:
        """Raises: ConfigError if it isn't this cluster's, or its schema does not fit; else
        ClusterUnavailableError.
        """

        async def look(connection: DatabaseConnection) -> None:
            await schema.check(connection, self.cluster)

        try:
            await self.transaction(look)
        except ClusterUnavailableError as error:
            if isinstance(error.__cause__, schema.MisfitError):
                raise ConfigError(f"the cluster's database {error.__cause__}") from None
            if isinstance(error.__cause__, ConfigError):
                raise error.__cause__ from None
            raise

    async def transaction(self, work: Callable[[DatabaseConnection], Awaitable[T]]) -> T:
        """The result of `work` in one transaction; an error of it undoes everything.

        `work` may be called again if the database has undone it.

        Raises: ClusterUnavailableError; then it may have been committed all the same.
        """
        return await self._repeated(partial(self._in_transaction, work))

    async def statement(self, work: Callable[[DatabaseConnection], Awaitable[T]]) -> T:
        """The result of `work`, each statement of which is a transaction by itself.

        For one statement it takes a third of the messages. `work` may be called again, as above.

        Raises: ClusterUnavailableError; then it may have been committed all the same.
        """
        return await self._repeated(work)

    async def _repeated(self, work: Callable[[DatabaseConnection], Awaitable[T]]) -> T:
        tries = 0
        while True:
            tries += 1
            try:
                return await self._once(work)
            except (ConfigError, *FAILURES) as error:
                if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
                    # All connections may lead to a server that has lost its role.
                    await self._pool.expire_connections()
                if may_be_repeated(error) and tries < _TRIES:
                    continue
                raise ClusterUnavailableError(explained(error)) from error

    async def _once(self, work: Callable[[DatabaseConnection], Awaitable[T]]) -> T:
        async with asyncio.timeout(self._seconds):
            connection = await self._pool.acquire()
            try:
                return await work(connection)
            except BaseException as error:
                # A connection with an unknown state is of no use to others.
                if not isinstance(error, Exception) or is_lost(error):
                    connection.terminate()
                raise
            finally:
                await self._pool.release(connection, timeout=self._seconds)

    async def _in_transaction(
        self, work: Callable[[DatabaseConnection], Awaitable[T]], connection: Any
    ) -> T:
        transaction = connection.transaction()
        await transaction.start()
        try:
            result = await work(connection)
        except Exception as error:
            if not is_lost(error):
                await transaction.rollback()
            raise
        await transaction.commit()
        return result

    @asynccontextmanager
    async def listening(
        self, channel: str, told: Callable[[], None]
    ) -> AsyncIterator[DatabaseConnection]:
        """A connection of its own; `told` is called at each message, and when it has ended.

        Raises: ClusterUnavailableError, also for the block's errors of the database.
        """
        connection: Any = None
        try:
            async with asyncio.timeout(self._seconds):
                connection = await asyncpg.connect(**self._options)
                await self._check(connection)
                connection.add_termination_listener(lambda _: told())
                await connection.add_listener(channel, lambda *_: told())
            yield connection
        except (ConfigError, *FAILURES) as error:
            raise ClusterUnavailableError(explained(error)) from error
        finally:
            if connection is not None:
                connection.terminate()

    async def _check(self, connection: DatabaseConnection) -> None:
        """Each connection: a fail-over may lead to another database."""
        await schema.check(connection, self.cluster)


@asynccontextmanager
async def administering(access: Access) -> AsyncIterator[DatabaseConnection]:
    """One connection without a check of what is there, for who makes the tables.

    Raises: ClusterUnavailableError, ConfigError if the DSN can't be used.
    """
    connection: Any = None
    try:
        connection = await asyncpg.connect(**_options(access, _WORK_SECONDS))
        yield connection
    except (ValueError, asyncpg.ClientConfigurationError) as error:
        raise ConfigError(f"PADDOCK_CLUSTER_DATABASE: {error}") from None
    except FAILURES as error:
        raise ClusterUnavailableError(explained(error)) from error
    finally:
        if connection is not None:
            connection.terminate()


def _options(access: Access, seconds: float) -> dict[str, Any]:
    statement = min(_STATEMENT_SECONDS, seconds)
    options: dict[str, Any] = {
        "dsn": access.dsn,
        "timeout": min(_CONNECT_SECONDS, seconds),
        "command_timeout": statement,
        "server_settings": {
            "application_name": f"paddock {access.cluster}",
            "search_path": schema.NAME,
            **_server_limits(statement),
        },
    }
    if access.password_file is not None:
        file = access.password_file
        options["password"] = lambda: _password(file)
    if "," in access.dsn and "target_session_attrs" not in access.dsn:
        options["target_session_attrs"] = "read-write"
    return options


def _server_limits(seconds: float) -> Mapping[str, str]:
    """What ends on the server, too, so that no lost client holds locks."""
    milliseconds = str(round(seconds * 1000))
    return dict.fromkeys(
        ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"), milliseconds
    )


def _password(file: Path) -> str:
    """Raises: ConfigError."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no text"
        raise ConfigError(f"PADDOCK_CLUSTER_DATABASE_PASSWORD_FILE: {file}: {why}") from None


async def _nothing(connection: object) -> None:
    pass
