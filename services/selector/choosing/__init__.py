"""Who may be chosen, whom a policy chose, and what became of everybody else."""
