"""What a process that works for others may see and do: decided as a value, then held by the kernel.

`grant` says what a process is given, `readable` what Python itself has to read, `confining` applies both to
the calling process for good: resource limits, Landlock (files, ports, signals), and seccomp (system calls).
None of it needs root, and all that the process starts inherits it. `bubblewrap` is a second layer around the
process that workers of jobs with code are forked from.
"""
