"""The workers of this node: in which slots they run, what they are forked from, and what they print."""
