"""Which of the packages that some commands need are installed, and how to get them."""

from importlib.util import find_spec

GET_DASHBOARD = "pip install 'peerloom[dashboard]'"


def has_dashboard() -> bool:
    """Whether what serves the dashboard's pages is here."""
    return all(find_spec(name) is not None for name in ("starlette", "uvicorn"))
