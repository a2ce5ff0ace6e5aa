"""Converts domain objects into the contract, and contract bodies into the domain's parameters.

Views change nothing and call no services.
"""
