"""A whole Peerloom system in memory, for tests of code that uses Peerloom."""
