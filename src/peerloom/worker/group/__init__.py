"""The process group of one generation: meeting, waiting for collectives, and breaking."""
