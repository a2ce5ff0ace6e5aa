"""Stock systems as virtual machines, and the tests that run in them: `make hosts`."""
