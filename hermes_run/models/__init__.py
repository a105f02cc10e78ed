"""Models: the client of OpenAI-compatible endpoints, the one owner of retries, and the scripted model."""
