"""Root inside: commands as uid 0 of a user namespace that maps to the session's uid."""
