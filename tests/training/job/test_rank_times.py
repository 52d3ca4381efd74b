"""Bytes given to collectives are counted on whichever thread autograd runs them."""

import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("torchrec")
import torch
import torch.distributed as dist

from recsmith.training.job.rank_times import BytesSent

BEYOND_THE_CALLER = 100  # backward passes within each other, of which autograd hands the inner ones to another thread


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # pyright: ignore
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize(("depth", "elsewhere"), [(0, False), (BEYOND_THE_CALLER, True)])
def test_collectives_of_a_backward_pass_are_counted_on_any_thread(depth: int, elsewhere: bool):
    threads = list[int]()

    class Within(torch.autograd.Function):
        @staticmethod
        def forward(ctx, given, left):  # pyright: ignore
            ctx.left = left
            return given.clone()

        @staticmethod
        def backward(ctx, grad):  # pyright: ignore
            if ctx.left:
                with torch.enable_grad():
                    Within.apply(torch.ones(1, requires_grad=True), ctx.left - 1).sum().backward()
            else:
                dist.all_reduce(torch.ones(6))
                threads.append(threading.get_ident())
            return grad, None

    with BytesSent() as sent:
        Within.apply(torch.ones(1, requires_grad=True), depth).sum().backward()
    assert sent.bytes == {"allreduce": 24}
    assert (threads != [threading.get_ident()]) == elsewhere
