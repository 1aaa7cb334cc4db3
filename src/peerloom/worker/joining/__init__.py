"""How a newcomer gets the state: a broadcast that all wait for, or a catch-up while the others train on."""
