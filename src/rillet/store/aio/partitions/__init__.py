"""The asyncio form of rillet.store.partitions."""
