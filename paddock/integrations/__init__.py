"""Sandboxes for agent frameworks: a module for each, which imports its framework.

They use the client as any other program does, and add no policy, limit or record of their own.
"""
