"""The ACL commands."""
