"""What the record is searched by: an index in a file of its own, which follows the ledger."""
