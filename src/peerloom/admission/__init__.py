"""Who may come in: the authority that signs certificates, the tokens that admit, joining and renewing."""
