"""pubsub."""
