"""Jobs that wait for each other: what is there when the worker comes is run together."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Job = TypeVar("Job")
Answer = TypeVar("Answer")


class Full(Exception):
    """More is waiting than is allowed."""


class Batcher(Generic[Job, Answer]):
    """One thread that runs jobs in the order they came, up to `size` at once.

    It never waits for a batch to fill: while one batch runs the next one gathers. `run` gives one answer for each job,
    and an answer must not depend on what runs along with it; `bagcert audit` checks that of a model.
    """

    def __init__(self, run: Callable[[list[Job]], Sequence[Answer]], size: int, most_waiting: int) -> None:
        self._run, self._size, self._most_waiting = run, size, most_waiting
        self._waiting: deque[tuple[Job, asyncio.Future[Answer]]] = deque()
        self._woken = asyncio.Event()
        self._closing = False
        self._thread = ThreadPoolExecutor(1)  # one and the same, so that torch keeps one pool of threads for it
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Run what was accepted, then stop."""
        self._closing = True
        self._woken.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown()

    async def answers(self, jobs: list[Job]) -> list[Answer]:
        """The answers to the jobs, in their order; raises `Full` and takes none of them where too many wait."""
        if self._closing or self.waiting + len(jobs) > self._most_waiting:
            raise Full
        loop = asyncio.get_running_loop()
        entries: list[tuple[Job, asyncio.Future[Answer]]] = [(job, loop.create_future()) for job in jobs]
        self._waiting.extend(entries)
        self._woken.set()
        # Whoever gives up cancels the futures, and the worker then leaves their jobs out.
        return list(await asyncio.gather(*(future for _, future in entries)))

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._woken.wait()
            self._woken.clear()
            while batch := self._next_batch():
                open_ones = [future for _, future in batch]
                try:
                    found = await loop.run_in_executor(self._thread, self._run, [job for job, _ in batch])
                except Exception as error:
                    for future in open_ones:
                        if not future.done():
                            future.set_exception(error)
                    continue
                for future, answer in zip(open_ones, found, strict=True):
                    if not future.done():  # else its request has given up
                        future.set_result(answer)
            if self._closing:
                return

    def _next_batch(self) -> list[tuple[Job, asyncio.Future[Answer]]]:
        batch: list[tuple[Job, asyncio.Future[Answer]]] = []
        while self._waiting and len(batch) < self._size:
            job, future = self._waiting.popleft()
            if not future.done():
                batch.append((job, future))
        return batch
