"""This node among the others: who it is, where it is reached, and what it tells the registry."""
