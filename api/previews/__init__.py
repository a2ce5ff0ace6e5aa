"""Open ports of sessions, served on an origin of their own, away from the API."""
