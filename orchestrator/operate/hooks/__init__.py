"""Signed messages to hosts: hooks, which tell what happens, and the tools that hosts register."""
