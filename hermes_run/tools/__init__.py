"""The tools that models use. They know the Sandbox Protocol and no backend."""
