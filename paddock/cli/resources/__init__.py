"""The commands for the API's resources, a module for each; some share another module."""
