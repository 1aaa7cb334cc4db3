"""Messages as the SDK's values: what is unset on the wire becomes None."""
