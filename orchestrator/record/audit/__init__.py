"""The tamper-evident record of all decisions and actions."""
