"""Requests and answers of the API, a module for each resource; large ones have two."""
