"""The four services.

Each has the same rooms: `__main__`, `config`, `servicer`, `rules`, `store`, `tables`.
"""

if __name__ == "services":
    raise ImportError("import peerloom.services instead: under two names its classes would exist twice")
