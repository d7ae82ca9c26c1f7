"""Jobs that wait for each other: what is there when the worker comes is run together."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

Job = TypeVar("Job")
Half = TypeVar("Half")
Answer = TypeVar("Answer")


class Full(Exception):
    """More is waiting than is allowed."""


@dataclass(frozen=True)
class Stage(Generic[Job, Answer]):
    """A step of the work, in a thread of its own, with so many threads of torch's."""

    run: Callable[[Job], Answer]
    threads: int


class Batcher(Generic[Job, Half, Answer]):
    """Runs jobs in the order they came, up to `size` at once, in two stages that work at the same time.

    It never waits for a batch to fill: while one batch runs the next one gathers. The second stage gives one answer for
    each job, and an answer must not depend on what runs along with it; `bagcert audit` checks that of a model.
    """

    def __init__(
        self,
        first: Stage[list[Job], Half],
        second: Stage[Half, list[Answer]],
        size: int,
        most_waiting: int,
    ) -> None:
        self._first, self._second, self._size, self._most_waiting = first, second, size, most_waiting
        self._waiting: deque[tuple[Job, asyncio.Future[Answer]]] = deque()
        self._woken = asyncio.Event()
        self._closing = False
        # One thread for each stage, always the same: torch keeps a pool of threads, and their number, for each.
        self._threads = [
            ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(stage.threads,))
            for stage in (first, second)
        ]
        self._task: asyncio.Task[None] | None = None
        self._finishing: asyncio.Task[None] | None = None  # the batch in the second stage

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
        for thread in self._threads:
            thread.shutdown()

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
                half = loop.run_in_executor(self._threads[0], self._first.run, [job for job, _ in batch])
                await asyncio.wait([half])
                await self._finished()  # one batch is ahead, not more
                finish = self._finish(half, [future for _, future in batch])
                self._finishing = asyncio.get_running_loop().create_task(finish)
            if self._closing:
                await self._finished()
                return

    async def _finished(self) -> None:
        if self._finishing is not None:
            await self._finishing

    async def _finish(self, half: asyncio.Future[Half], futures: "list[asyncio.Future[Answer]]") -> None:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._threads[1], self._second.run, await half)
        except Exception as error:
            for future in futures:
                if not future.done():
                    future.set_exception(error)
            return
        for future, answer in zip(futures, found, strict=True):
            if not future.done():  # else its request has given up
                future.set_result(answer)

    def _next_batch(self) -> list[tuple[Job, asyncio.Future[Answer]]]:
        batch: list[tuple[Job, asyncio.Future[Answer]]] = []
        while self._waiting and len(batch) < self._size:
            job, future = self._waiting.popleft()
            if not future.done():
                batch.append((job, future))
        return batch
