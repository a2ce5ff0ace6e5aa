"""The tamper-evident record of everything that is decided and done."""
