"""What went wrong with the cluster's database, in one line that says what to do. No I/O."""

import ssl

import asyncpg

from orchestrator.cluster.postgres.schema import MisfitError
from orchestrator.ground.config_error import ConfigError

# Of the server's own words.
_MOST_WORDS = 160
_LOOK = "see the log of its server"
_KEEPS = "what needs it is refused, and sessions go on"


def explained(error: BaseException) -> str:
    """The line about this error of the driver, of the network or of the database."""
    return f"the cluster's database {_what(error)}; {_KEEPS}"


def problem_and_remedy(error: BaseException) -> tuple[str, str]:
    """The same in two parts: what is wrong, and what to do."""
    what, _, remedy = _what(error).partition(": ")
    known = isinstance(error, ConfigError) or any(isinstance(error, kinds) for kinds, _ in _WORDS)
    return (what, remedy) if known and remedy else (_what(error), _LOOK)


def is_lost(error: BaseException) -> bool:
    """Whether the connection can't be used again after this error."""
    return isinstance(
        error,
        OSError
        | TimeoutError
        | ConfigError
        | asyncpg.InterfaceError
        | asyncpg.PostgresConnectionError
        | asyncpg.OperatorInterventionError
        | asyncpg.ReadOnlySQLTransactionError,
    )


def may_be_repeated(error: BaseException) -> bool:
    """Whether the database undid it, and it may succeed if it is repeated at once."""
    return isinstance(
        error,
        asyncpg.DeadlockDetectedError
        | asyncpg.SerializationError
        | asyncpg.ReadOnlySQLTransactionError,
    )


# Everything that asking the database may raise, besides errors of ours.
FAILURES = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
# The first that fits counts.
_WORDS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        "refuses our name or password: see PADDOCK_CLUSTER_DATABASE and"
        " PADDOCK_CLUSTER_DATABASE_PASSWORD_FILE",
    ),
    (
        asyncpg.InvalidCatalogNameError,
        "does not exist on that server: create it, or mend PADDOCK_CLUSTER_DATABASE",
    ),
    (
        asyncpg.TooManyConnectionsError,
        "has no connection left: raise max_connections; each node needs 6, each gateway 5",
    ),
    (
        asyncpg.CannotConnectNowError,
        "is starting up, or shutting down: it is tried again",
    ),
    (
        (asyncpg.ReadOnlySQLTransactionError, asyncpg.TargetServerAttributeNotMatched),
        "is read-only, as a standby is: end its fail-over, or list all servers in"
        " PADDOCK_CLUSTER_DATABASE",
    ),
    (
        asyncpg.DiskFullError,
        "has no disk space left: make room on its server",
    ),
    (
        asyncpg.InsufficientResourcesError,
        "lacks memory or other resources: see its server's log",
    ),
    (
        asyncpg.InsufficientPrivilegeError,
        "refuses this to our user: grant it the tables of the schema paddock",
    ),
    (
        (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.UndefinedFunctionError),
        "has not the tables of this version: run `paddock cluster migrate`",
    ),
    (
        (asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError),
        "is too slow, or others hold its rows: see its load and locks",
    ),
    (
        asyncpg.IdleInTransactionSessionTimeoutError,
        "has ended our transaction, because we were too slow: see this machine's load",
    ),
    (
        asyncpg.OperatorInterventionError,
        "has ended our connection, as in a restart or fail-over: it is tried again",
    ),
    (
        (asyncpg.DeadlockDetectedError, asyncpg.SerializationError),
        "has undone it because of others' changes: try again",
    ),
    (
        ssl.SSLError,
        "has no certificate that we trust: see sslmode and sslrootcert in PADDOCK_CLUSTER_DATABASE",
    ),
    (
        TimeoutError,
        "does not answer in time: see its load, and the network to it",
    ),
    (
        ConnectionRefusedError,
        "is not there: start it, or mend the host and port in PADDOCK_CLUSTER_DATABASE",
    ),
    (
        (
            OSError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,  # a statement on a connection that is being closed
            asyncpg.PostgresConnectionError,
        ),
        "can't be reached, or has closed the connection: see its server, and the network to it",
    ),
)


def _what(error: BaseException) -> str:
    if isinstance(error, MisfitError):
        return str(error)
    if isinstance(error, ConfigError):
        return f"can't be asked: {error}"
    for kinds, words in _WORDS:
        if isinstance(error, kinds):
            return words
    words = " ".join(str(error).split())[:_MOST_WORDS]
    return f"failed with {type(error).__name__}: {words}"
