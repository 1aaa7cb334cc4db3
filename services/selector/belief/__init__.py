"""How evidence moves what we think of a node, and how that is explained."""
