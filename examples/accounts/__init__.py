"""Accounts: a partitioned stream, in order for each account."""
