"""What is done again and again beside a measurement."""

import threading
from abc import ABC, abstractmethod
from typing import Self


class Repeating(ABC):
    """Acts on a thread of its own, after each pause of so many seconds, while the context lasts."""

    def __init__(self, name: str, pause_s: float) -> None:
        self._pause_s = pause_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    @abstractmethod
    def act(self) -> None:
        """What is done each time."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(self._pause_s):
            self.act()
