"""E2B's interface, as its SDKs for Python and JavaScript use it."""
