"""Search engines, one a file. Which there are: `core/registry.py`; where they are: `spec/web.py`."""
