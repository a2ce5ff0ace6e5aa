"""Commands of `paddock` that need the server: they act on the machine they run on."""
