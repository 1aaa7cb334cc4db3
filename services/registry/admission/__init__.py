"""The registry's door: the authority that signs, tokens that admit, and who was turned out."""
