"""What the machine's owner allows: when it is lent, what it has, how fast it is, and who has to leave."""
