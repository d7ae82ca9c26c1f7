"""Batches: no job is lost or mixed up, and the queue keeps its limit."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from bagcert.server.worker import Batcher, QueueFull, Stage


class Doubler:
    """The first stage doubles numbers. The first batch waits until it is let go, so that the others gather."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun, self.let_go = threading.Event(), threading.Event()

    def __call__(self, jobs: list[int]) -> list[int]:
        self.batches.append(jobs)
        self.begun.set()
        assert self.let_go.wait(60)
        if 13 in jobs:
            raise ArithmeticError("thirteen")
        return [2 * job for job in jobs]

    async def busy(self) -> None:
        """Wait until the first batch is running."""
        await asyncio.to_thread(self.begun.wait, 60)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def opened(doubler: Doubler, size: int = 4, max_waiting: int = 100) -> Batcher[int, list[int], int]:
    batcher = Batcher(Stage(doubler, 1), Stage(one_less, 1), size, max_waiting)
    batcher.start()
    return batcher


def one_less(doubled: list[int]) -> list[int]:
    """The second stage."""
    if 34 in doubled:
        raise ArithmeticError("seventeen, doubled")
    return [number - 1 for number in doubled]


def test_what_comes_meanwhile_is_run_together_and_in_order() -> None:
    async def test() -> None:
        doubler = Doubler()
        batcher = opened(doubler)
        first = asyncio.create_task(batcher.answers([0]))
        await doubler.busy()
        others = [asyncio.create_task(batcher.answers([number, number + 100])) for number in range(1, 6)]
        await asyncio.sleep(0)
        assert batcher.waiting == 10
        doubler.let_go.set()
        assert await first == [-1]
        assert await asyncio.gather(*others) == [[2 * number - 1, 2 * number + 199] for number in range(1, 6)]
        assert doubler.batches == [[0], [1, 101, 2, 102], [3, 103, 4, 104], [5, 105]]
        await batcher.close()

    run(test())


def test_what_does_not_fit_is_refused_whole() -> None:
    async def test() -> None:
        doubler = Doubler()
        batcher = opened(doubler, max_waiting=2)
        first = asyncio.create_task(batcher.answers([0]))
        await doubler.busy()
        second = asyncio.create_task(batcher.answers([1]))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await batcher.answers([2, 3])
        third = asyncio.create_task(batcher.answers([4]))
        doubler.let_go.set()
        assert [await first, await second, await third] == [[-1], [1], [7]]
        await batcher.close()

    run(test())


def test_closing_answers_what_was_accepted_and_takes_no_more() -> None:
    async def test() -> None:
        doubler = Doubler()
        batcher = opened(doubler)
        accepted = [asyncio.create_task(batcher.answers([number])) for number in range(9)]
        await doubler.busy()
        closing = asyncio.create_task(batcher.close())
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await batcher.answers([10])
        doubler.let_go.set()
        await closing
        assert [await each for each in accepted] == [[2 * number - 1] for number in range(9)]

    run(test())


def test_who_gave_up_is_left_out() -> None:
    async def test() -> None:
        doubler = Doubler()
        batcher = opened(doubler)
        first = asyncio.create_task(batcher.answers([0]))
        await doubler.busy()
        tired, patient = asyncio.create_task(batcher.answers([1, 2])), asyncio.create_task(batcher.answers([3]))
        await asyncio.sleep(0)
        tired.cancel()
        first.cancel()
        await asyncio.sleep(0)
        doubler.let_go.set()
        assert await patient == [5]
        assert doubler.batches == [[0], [3]]
        await batcher.close()

    run(test())


def test_a_failure_in_either_stage_reaches_its_own_batch_only() -> None:
    async def test() -> None:
        doubler = Doubler()
        doubler.let_go.set()
        batcher = opened(doubler, size=1)
        results = await asyncio.gather(*(batcher.answers([job]) for job in (1, 13, 17, 2)), return_exceptions=True)
        assert (results[0], results[3]) == ([1], [3])
        assert [str(error) for error in results[1:3]] == ["thirteen", "seventeen, doubled"]
        await batcher.close()

    run(test())
