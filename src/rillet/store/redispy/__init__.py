"""redis-py's clients of the engine in this process, without a socket: redis_py for threads, redis_asyncio for tasks."""
