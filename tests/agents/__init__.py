"""Every coding agent's image, for `make agents`: too large for `make test`."""
