"""Programs that run in the environment of another project's packages, and know nothing else.

Suites are run by that environment's pytest.
"""
