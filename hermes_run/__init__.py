"""hermes-run: a declarative batch runner for tool-calling LLM agents."""

__version__ = "0.1.0"
