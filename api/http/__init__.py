"""Reads requests and writes answers. Only this package and the server use aiohttp's server."""
