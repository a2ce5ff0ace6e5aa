"""How engines of clusters start nodes and gateways."""
