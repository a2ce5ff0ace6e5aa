"""The API's operations: typed functions, one module per resource."""
