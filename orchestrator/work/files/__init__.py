"""Files of a session: read, written, listed and archived."""
