"""Settings, the operator's files, and parsers of hosts, addresses and URLs."""
