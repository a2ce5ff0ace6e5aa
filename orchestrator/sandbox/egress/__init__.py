"""The governed way out: what sandboxes without a network may reach, through a proxy on the host."""
