"""A fan-out to 500 asyncio readers: see fanout.py."""
