"""Lazy streams for the simulated device: what runs when is decided late, early or by a seed, within what events allow.

A program whose result depends on that choice lacks an event. Nothing here knows about memory.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from ...errors import CaffeError, DeviceError, LostRank

ORDERS = ("latest", "earliest", "random")


class SimEvent:
    """Done when the work queued before it on its stream has run. `time`: on the model clock, in seconds. recording: of
    which it is a part (None: of none); it means something only there."""

    __slots__ = ("done", "recording", "stream", "time")

    def __init__(self, stream: SimStream, recording: Recording | None = None):
        self.stream = stream
        self.recording = recording
        self.done = False
        self.time = stream.time


class SimStream:
    """A queue of tasks: a callable to run, an event to mark (record), or an event to wait for."""

    def __init__(self, name: str):
        self.name = name
        self.tasks: deque = deque()
        self.time = 0.0

    def ready(self) -> bool:
        if not self.tasks:
            return False
        kind, what = self.tasks[0]
        return kind != "wait" or what.done

    def run_one(self) -> None:
        kind, what = self.tasks.popleft()
        if kind == "work":
            what()
        elif kind == "record":
            what.done = True


class Scheduler:
    """Runs the tasks of some streams in one legal order: "latest", "earliest" or "random" with a seed.

    After a task that ends with DeviceError or LostRank none runs, as on a GPU: whoever waits for an event that is not
    done by then gets this error, so that nobody takes for true what was to be computed."""

    def __init__(self, streams: list[SimStream], order: str = "latest", seed: int = 0):
        if order not in ORDERS:
            raise ValueError(f"order {order!r} is not one of {ORDERS}")
        self.streams = streams
        self.order = order
        self._random = random.Random(seed)
        self._failed: CaffeError | None = None

    def work(self, stream: SimStream, task: Callable[[], None], seconds: float) -> None:
        stream.time += seconds
        stream.tasks.append(("work", task))
        self._poll()

    def record(self, stream: SimStream) -> SimEvent:
        event = SimEvent(stream)
        stream.tasks.append(("record", event))
        self._poll()
        return event

    def wait(self, stream: SimStream, event: SimEvent) -> None:
        stream.time = max(stream.time, event.time)
        stream.tasks.append(("wait", event))
        self._poll()

    def finish(self, event: SimEvent) -> None:
        """Run whatever the order chooses until `event` is done."""
        if self.order == "random":
            while not event.done:
                self._run_random()
        else:
            self._run_needed(event)

    def drain(self) -> None:
        """Run everything."""
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
                chain.append(last.stream.tasks[0][1])


class Recording:
    """What was queued on some streams while it was open, to be queued again as one: nothing of it begins before what
    the launching stream holds is done, nothing queued on that stream later before all of it is done. Streams are only
    the order within; the device's other streams and a launch know nothing of each other."""

    def __init__(self, scheduler: Scheduler, streams: list[SimStream], lanes: list[SimStream]):
        """streams: those recorded; the first is the one that launches. lanes: what runs in place of the others."""
        self._scheduler = scheduler
        self._lane = dict(zip(streams, [streams[0], *lanes], strict=True))
        self._tasks: list[tuple[str, SimStream, object, float]] = []

    def work(self, stream: SimStream, task: Callable[[], None], seconds: float) -> None:
        self._tasks.append(("work", stream, task, seconds))

    def record(self, stream: SimStream) -> SimEvent:
        event = SimEvent(stream, self)
        self._tasks.append(("record", stream, event, 0.0))
        return event

    def wait(self, stream: SimStream, event: SimEvent) -> None:
        self._tasks.append(("wait", stream, event, 0.0))

    def launch(self) -> None:
        """Queue it once more."""
        scheduler, lane = self._scheduler, self._lane
        first, *others = lane.values()
        began = scheduler.record(first)
        for other in others:
            scheduler.wait(other, began)
        events = {}
        for kind, stream, what, seconds in self._tasks:
            if kind == "work":
                scheduler.work(lane[stream], what, seconds)
            elif kind == "record":
                events[what] = scheduler.record(lane[stream])
            else:
                scheduler.wait(lane[stream], events[what])
        for other in others:
            scheduler.wait(first, scheduler.record(other))
