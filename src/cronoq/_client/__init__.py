"""What client and worker share: targets, connections and calls, on anyio, so under Trio and asyncio alike."""
