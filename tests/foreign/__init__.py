"""Clients of other projects, with the tests of these projects, for `make test-foreign`.

Each is installed from a package index into an environment of its own, which needs the network.
"""
