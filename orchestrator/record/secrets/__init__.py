"""Secrets that never enter a sandbox: who has which, kept encrypted, set and removed on record."""
