"""The registry's values as messages, and its lists in pages."""
