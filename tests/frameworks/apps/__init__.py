"""What the worker processes of the frameworks import. The environment names the URL of the server."""
