"""Sessions: created, found, changed, suspended, ended, and taken over after a restart."""
