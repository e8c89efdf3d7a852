"""The schedule of the jobs of a graph, from which its time left comes."""

from __future__ import annotations

import pytest

from snakemake_logger_plugin_bertline.schedule import GraphJob, seconds_left


def jobs_left(*jobs: tuple[int, int, tuple[int, ...]]) -> list[GraphJob]:
    """Jobs by number, cores, and the numbers of those they need."""
    return [GraphJob(number, "rule", cores=cores, needs=needs) for number, cores, needs in jobs]


def test_jobs_that_wait_for_each_other_take_their_sum_and_others_share_the_cores() -> None:
    chain = jobs_left((1, 1, ()), (2, 1, (1,)), (3, 1, (2,)))
    assert seconds_left(chain, 8, {1: 10, 2: 20, 3: 30}, {}) == 60
    side_by_side = jobs_left(*((number, 1, ()) for number in range(6)))
    assert seconds_left(side_by_side, 2, dict.fromkeys(range(6), 10), {}) == 30


def test_a_training_on_all_cores_runs_alone() -> None:
    jobs = jobs_left((1, 2, ()), (2, 1, ()), (3, 1, ()))
    assert seconds_left(jobs, 2, {1: 100, 2: 10, 3: 10}, {2: 0}) == 110


def test_of_running_jobs_only_the_rest_counts_and_unknown_ones_take_no_time() -> None:
    jobs = jobs_left((1, 1, ()), (2, 1, (1,)), (3, 1, (2,)))
    assert seconds_left(jobs, 1, {1: 10, 3: 5}, {1: 6}) == 9
    assert seconds_left(jobs, 1, {1: 10, 3: 5}, {1: 16}) == 5


def shards(*numbers: int, group_size: int) -> list[GraphJob]:
    return [GraphJob(number, "encode_shard", group=number // group_size * group_size) for number in numbers]


@pytest.mark.parametrize(("passed", "left"), [(1, 479), (61, 419)])
def test_of_a_cluster_a_group_takes_one_slot_and_the_time_of_all_its_jobs(passed: int, left: int) -> None:
    jobs = shards(*range(256), group_size=8)
    assert seconds_left(jobs, 64, dict.fromkeys(range(256), 60), dict.fromkeys(range(256), passed)) == left


def test_groups_wait_for_slots_and_for_what_any_of_their_jobs_needs() -> None:
    jobs = shards(*range(512, 1536), group_size=8)  # two of three waves
    assert seconds_left(jobs, 64, dict.fromkeys(range(512, 1536), 60), dict.fromkeys(range(512, 1024), 0)) == 960
    chain = [
        GraphJob(1, "split"),
        GraphJob(2, "write", group=2),
        GraphJob(3, "write", group=2, needs=(1,)),
        GraphJob(4, "encode", group=2, needs=(3,)),
        GraphJob(5, "all", needs=(4,)),
    ]
    assert seconds_left(chain, 9, {1: 10, 2: 20, 3: 30, 4: 40, 5: 50}, {}) == 150


def test_of_a_rule_with_a_limit_only_so_many_run_at_a_time() -> None:
    jobs = [GraphJob(number, "finetune_task", priority=-1) for number in range(45)] + [GraphJob(45, "predict")]
    seconds = {**dict.fromkeys(range(45), 60), 45: 100}
    assert seconds_left(jobs, 16, seconds, {0: 20}, {"finetune_task": 1}) == 45 * 60 - 20
