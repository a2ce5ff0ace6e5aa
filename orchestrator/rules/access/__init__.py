"""Access control: API keys, their roles, bounds and expiry."""
