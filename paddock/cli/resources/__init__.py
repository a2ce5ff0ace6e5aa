"""The commands of the API's resources, a module for each; what they only share has its own."""
