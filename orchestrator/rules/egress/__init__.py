"""The rules of the way out: what they are, and what they say of a request."""
