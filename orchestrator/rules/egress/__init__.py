"""The rules of the way out, and their decisions about requests."""
