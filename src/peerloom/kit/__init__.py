"""What all services share, and which knows no service."""
