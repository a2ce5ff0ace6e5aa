"""Requests read and answers written: aiohttp is used here, and where the server is made."""
