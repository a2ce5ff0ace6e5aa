"""Fixtures of clusters: a database, and machines."""

from tests.support.machines import cluster, made_cluster
from tests.support.postgres import postgres, postgres_server

__all__ = ["cluster", "made_cluster", "postgres", "postgres_server"]
