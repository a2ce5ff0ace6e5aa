"""Ports of sandboxes that clients may reach: what is open, the links, and the connections."""
