"""Fixtures of clusters: a database, and machines."""

from tests.support.postgres import postgres, postgres_server

__all__ = ["postgres", "postgres_server"]
