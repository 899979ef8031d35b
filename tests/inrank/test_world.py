"""What all ranks do together."""

from __future__ import annotations

import pytest

from areabench.errors import RunFailure, UserError
from areabench.transports.world import AbortRequired, SharedFailure, World

pytestmark = pytest.mark.mpi(min_size=3)


def test_together_gives_each_rank_its_own_result(world: World) -> None:
    assert world.together(lambda: 10 * world.rank) == 10 * world.rank


def test_of_server_gives_every_rank_the_result_of_rank_0(world: World) -> None:
    assert world.from_server(lambda: f"from {world.rank}") == "from 0"


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_a_user_error_on_one_rank_is_raised_on_all(world: World, culprit: int) -> None:
    def act() -> None:
        if world.rank == culprit:
            raise UserError("clients.count = 0 is below 1")

    with pytest.raises(SharedFailure) as caught:
        world.together(act)
    failure = caught.value.failure
    assert (failure.rank, failure.message, failure.user_error) == (culprit, "clients.count = 0 is below 1", True)


def test_a_failed_run_on_one_rank_is_raised_on_all_without_traceback(world: World) -> None:
    def act() -> None:
        if world.rank == 0:
            raise RunFailure("client 1 failed")

    with pytest.raises(SharedFailure) as caught:
        world.from_server(act)
    assert (caught.value.failure.message, caught.value.failure.user_error) == ("client 1 failed", False)


def test_any_other_exception_reaches_all_ranks_with_its_traceback(world: World) -> None:
    with pytest.raises(SharedFailure) as caught:
        world.together(lambda: 1 // (2 - world.rank))
    failure = caught.value.failure
    assert (failure.rank, failure.user_error) == (2, False)
    assert failure.message.startswith("Traceback")
    assert "ZeroDivisionError" in failure.message


def test_the_lowest_rank_reports_where_several_fail(world: World) -> None:
    def act() -> None:
        if world.rank > 0:
            raise UserError(f"rank {world.rank}")

    with pytest.raises(SharedFailure, match="rank 1"):
        world.together(act)


def test_a_failure_that_cannot_be_shared_waits_for_nobody(world: World) -> None:
    def act() -> None:
        raise AbortRequired("nobody listens")

    if world.rank == 0:
        with pytest.raises(AbortRequired):
            world.together(act)


def test_hosts_are_named_rank_by_rank(world: World) -> None:
    assert world.gather_hosts()[world.rank] == world.host
    assert len(world.gather_hosts()) == world.size
    assert world.from_server(lambda: world.first_on_node) is True
