"""The cluster's database, PostgreSQL. Nothing here is imported without a cluster."""
