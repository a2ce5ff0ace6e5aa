"""Pure decisions: permission levels, policies, keys, tools, the way out. No I/O here."""
