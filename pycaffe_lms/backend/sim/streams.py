"""Run lazy streams: which queued task runs when is decided late, early or by a seed, within what events allow.

A program whose result depends on that choice lacks an event. Nothing here knows about memory.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from ...errors import CaffeError, DeviceError, LostRank

ORDERS = ("latest", "earliest", "random")


class SimEvent:
    """Mark a place in a stream: `done` once the work queued before it has run.

    Attributes:
        time: seconds on the model clock.
        recording: the capture that the event belongs to, and has a meaning in; None: none.
    """

    __slots__ = ("done", "recording", "stream", "time")

    def __init__(self, stream: SimStream, recording: Recording | None = None):
        self.stream = stream
        self.recording = recording
        self.done = False
        self.time = stream.time

    def set_done(self) -> None:
        self.done = True


class SimStream:
    """Hold a queue of tasks, and the time on the model clock when the last of them ends."""

    def __init__(self, name: str):
        self.name = name
        self.tasks: deque[Callable[[], None] | SimEvent] = deque()  # to be called, or to be waited for
        self.time = 0.0

    def ready(self) -> bool:
        """Return whether there is a task that need not wait."""
        if not self.tasks:
            return False
        task = self.tasks[0]
        return not isinstance(task, SimEvent) or task.done

    def run_one(self) -> None:
        task = self.tasks.popleft()
        if not isinstance(task, SimEvent):
            task()


class Scheduler:
    """Run the tasks of some streams in one legal order: "latest", "earliest" or "random" with a seed.

    After a task that ends with DeviceError or LostRank no other runs, as on a GPU. A wait for an event that is not done
    by then raises this error, so that no value is used that was not computed.
    """

    def __init__(self, streams: list[SimStream], order: str, seed: int):
        if order not in ORDERS:
            raise ValueError(f"order {order!r} is not one of {ORDERS}")
        self.streams = streams
        self.order = order
        self._random = random.Random(seed)
        self._failed: CaffeError | None = None

    def work(self, stream: SimStream, task: Callable[[], None], seconds: float) -> None:
        """Queue a task that takes this long on the model clock."""
        stream.time += seconds
        stream.tasks.append(task)
        self._poll()

    def record(self, stream: SimStream) -> SimEvent:
        """Return an event behind the tasks queued so far."""
        event = SimEvent(stream)
        stream.tasks.append(event.set_done)
        self._poll()
        return event

    def wait(self, stream: SimStream, event: SimEvent) -> None:
        """Let later tasks of the stream wait for the event."""
        stream.time = max(stream.time, event.time)
        stream.tasks.append(event)
        self._poll()

    def finish(self, event: SimEvent) -> None:
        """Run tasks, as the order chooses, until `event` is done."""
        if self.order == "random":
            while not event.done:
                self._run_random()
        else:
            self._run_needed(event)

    def drain(self) -> None:
        """Run all tasks."""
        while any(s.tasks for s in self.streams):
            if self.order == "latest":
                stream = next(s for s in reversed(self.streams) if s.ready())
                self._run_one(stream)
            else:
                self._run_random()

    def _poll(self) -> None:
        if self.order == "earliest":
            while ready := [s for s in self.streams if s.ready()]:
                self._run_one(ready[0])
        elif self.order == "random":
            while self._random.random() < 0.5 and any(s.ready() for s in self.streams):
                self._run_random()

    def _run_random(self) -> None:
        self._run_one(self._random.choice([s for s in self.streams if s.ready()]))

    def _run_one(self, stream: SimStream) -> None:
        if self._failed is not None:
            raise self._failed
        try:
            stream.run_one()
        except (DeviceError, LostRank) as error:
            self._failed = error
            raise

    def _run_needed(self, event: SimEvent) -> None:
        chain = [event]
        while chain:
            last = chain[-1]
            if last.done:
                chain.pop()
            elif last.stream.ready():
                self._run_one(last.stream)
            else:
                awaited = last.stream.tasks[0]
                assert isinstance(awaited, SimEvent)  # else the stream is ready
                chain.append(awaited)


class Recording:
    """Collect the tasks that are queued on some streams during a capture, to queue them again as one.

    A launch begins after the work that the launching stream holds, and ends before the work that is queued there later.
    The recorded streams only order tasks within the launch; the device's other streams and a launch are not ordered.

    Args:
        streams: those recorded; the first one launches.
        lanes: the streams that run in place of the others.
    """

    def __init__(self, scheduler: Scheduler, streams: list[SimStream], lanes: list[SimStream]):
        self._scheduler = scheduler
        self._lane = dict(zip(streams, [streams[0], *lanes], strict=True))
        # each queues one recorded task again, given the events of this launch by those of the capture
        self._tasks: list[Callable[[dict[SimEvent, SimEvent]], None]] = []

    def work(self, stream: SimStream, task: Callable[[], None], seconds: float) -> None:
        self._tasks.append(lambda events: self._scheduler.work(self._lane[stream], task, seconds))

    def record(self, stream: SimStream) -> SimEvent:
        event = SimEvent(stream, self)

        def again(events: dict[SimEvent, SimEvent]) -> None:
            events[event] = self._scheduler.record(self._lane[stream])

        self._tasks.append(again)
        return event

    def wait(self, stream: SimStream, event: SimEvent) -> None:
        self._tasks.append(lambda events: self._scheduler.wait(self._lane[stream], events[event]))

    def launch(self) -> None:
        """Queue the recorded tasks once more."""
        scheduler = self._scheduler
        first, *others = self._lane.values()
        began = scheduler.record(first)
        for other in others:
            scheduler.wait(other, began)
        events: dict[SimEvent, SimEvent] = {}
        for queue_again in self._tasks:
            queue_again(events)
        for other in others:
            scheduler.wait(first, scheduler.record(other))
