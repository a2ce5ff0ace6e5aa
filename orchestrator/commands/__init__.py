"""Commands of a session: run, recorded, and their evidence."""
