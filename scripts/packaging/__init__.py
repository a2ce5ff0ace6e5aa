"""Makes what users install: Debian packages, and everything of a release."""
