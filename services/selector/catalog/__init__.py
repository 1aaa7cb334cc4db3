"""The nodes that the selector knows: as the registry tells of them, and as columns in memory."""
