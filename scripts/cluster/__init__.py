"""A cluster on one machine, for development and tests: machines that are namespaces, a database."""
