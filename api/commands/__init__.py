"""Commands of `paddock` that need the server and act on the local machine."""
