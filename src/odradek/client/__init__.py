"""Client side of the wire protocol: a sans-IO connection with a blocking and an asyncio shell."""
