"""Interfaces of other sandboxes, for their clients: thin layers over the operations of this API."""
