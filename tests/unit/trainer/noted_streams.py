"""Stands in for the streams of a job's workers."""

from peerloom.v1.trainer_pb2 import WorkerSessionRequest, WorkerSessionResponse


class Streams:
    """A session router without streams: notes what is sent to whom."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, WorkerSessionResponse]] = []
        self.hellos: dict[str, WorkerSessionRequest] = {}

    def send(self, worker_id: str, message: WorkerSessionResponse) -> None:
        self.sent.append((worker_id, message))

    ask = send

    def hello_of(self, worker_id: str) -> WorkerSessionRequest | None:
        return self.hellos.get(worker_id)

    def is_connected(self, worker_id: str) -> bool:
        return worker_id in self.hellos

    def told(self, worker_id: str) -> list[str]:
        """The kinds of what a worker was told since the last time that this was asked."""
        kinds = [str(message.WhichOneof("message")) for to, message in self.sent if to == worker_id]
        self.sent = [(to, message) for to, message in self.sent if to != worker_id]
        return kinds
