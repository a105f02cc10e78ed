"""Floor 0: pure values and the Protocols. No I/O, no clock, no randomness, no asyncio."""
