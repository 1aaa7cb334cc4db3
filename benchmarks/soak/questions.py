"""What a program that asks all the time has heard: how long answers take, and whether they stay the same."""

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from benchmarks.chaos.places import Place
from benchmarks.soak.growth import Reading

MODULE = "benchmarks.soak.asking"


class Heard:
    """What was heard: milliseconds of each answer by what was asked, failures, and broken promises."""

    def __init__(self) -> None:
        self.took: dict[str, list[Reading]] = defaultdict(list)
        self.failed: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}  # of the last failure of each kind
        self.broken: list[str] = []
        self._answers: dict[str, Any] = {}

    def note(self, told: Mapping[str, Any], at_s: float) -> None:
        """One line of JSON, at a time (seconds since the beginning)."""
        if "failed" in told:
            self.failed[told["what"]] += 1
            self.reasons[told["what"]] = told["failed"]
            return
        self.took[told["what"]].append(Reading(at_s, 1000 * float(told["took_s"])))
        if job := told["model"]:
            first = self._answers.setdefault(job, told["answer"])
            if first != told["answer"]:
                self.broken.append(f"the model of {job} answers {told['answer']}, and {first} before")


class Questions(Heard):
    """Answers as they come, heard on a thread while the context lasts."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._began_s = time.monotonic()
        self._process = place.run([MODULE])
        self._thread = threading.Thread(target=self._hear, name="questions")
        self._is_over = False

    def ask_model(self, job_id: str) -> None:
        """From now on that job's model is asked."""
        assert self._process.stdin is not None, "it is told there"
        self._process.stdin.write(f"{job_id}\n")
        self._process.stdin.flush()

    def __enter__(self) -> "Questions":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._process.kill()
        self._process.wait()
        self._thread.join()

    def _hear(self) -> None:
        assert self._process.stdout is not None, "it answers there"
        for line in self._process.stdout:
            self.note(json.loads(line), time.monotonic() - self._began_s)
        if not self._is_over:
            self.broken.append("the program that asks has ended")
