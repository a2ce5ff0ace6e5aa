"""Handlers, one module for each resource."""
