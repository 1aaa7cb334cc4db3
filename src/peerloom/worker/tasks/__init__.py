"""The built-in tasks, and how tasks are found."""
