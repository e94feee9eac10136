"""When choices are measured again, by a clock of the test."""

from __future__ import annotations

import pytest

from fairlead.icd.command_buffer import reviews as module
from fairlead.icd.command_buffer.reviews import FIRST, MOST, Reviews


class Clock:
    """Seconds that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def look_until(reviews: Reviews, ran: int, kind: str = "queue") -> int:
    """After how many replays a review is due, where time is no matter."""
    while later := reviews.look(kind, ran):
        assert later <= MOST
        ran += later
    return ran


def test_each_review_that_confirms_a_choice_doubles_the_replays_until_the_next() -> None:
    reviews, found, ran = Reviews(Clock()), list[int](), 0
    for _ in range(12):
        reviews.begin("queue", ran)
        ran += 16
        later = reviews.end("plan", ran)
        assert reviews.kind is None
        due = look_until(reviews, ran + later)
        found.append(due - ran)
        ran = due
    assert found == [FIRST << turn for turn in range(12)]
    reviews.begin("queue", ran)
    assert reviews.end("another plan", ran + 16) == FIRST


def test_a_review_takes_at_most_one_replay_in_a_hundred() -> None:
    reviews = Reviews(Clock())
    reviews.begin("queue", 0)
    assert reviews.end("plan", 500) == 50_000
    reviews.begin("queue", 50_500)
    assert reviews.end("plan", 51_500) == MOST
    assert look_until(reviews, 51_500) == 151_500


def test_a_review_takes_at_most_one_second_in_a_hundred() -> None:
    clock = Clock()
    reviews = Reviews(clock)
    reviews.begin("queue", 0)
    clock.now = 2.0
    assert reviews.end("plan", 16) == FIRST
    clock.now += 199.0
    assert reviews.look("queue", 10_000) == MOST
    clock.now += 1.0
    assert reviews.look("queue", 10_000) == 0
    reviews.begin("queue", 100_000)
    assert reviews.look("queue", 200_000) == FIRST  # it is measured just now
    assert reviews.look("another queue", 200_000) == 0


def test_each_kind_of_queue_has_its_choice() -> None:
    reviews = Reviews(Clock())
    reviews.begin("one", 0)
    assert reviews.kind == "one" and reviews.end("plan", 0) == FIRST
    reviews.begin("other", 0)
    assert reviews.end("plan", 0) == FIRST
    reviews.begin("one", 0)
    assert reviews.end("plan", 0) == 2 * FIRST


def test_other_cores_are_a_reason_for_a_review(monkeypatch: pytest.MonkeyPatch) -> None:
    reviews, cores = Reviews(Clock()), 4
    monkeypatch.setattr(module, "count_cores", lambda: cores)
    for cores in (4, 2, 8):
        if cores != 4:
            assert reviews.look("queue", 1000) == 0
        reviews.begin("queue", 1000)
        reviews.end("plan", 1016)
        assert reviews.look("queue", 1020)


@pytest.mark.parametrize("changes", [False, True], ids=["it stays", "it changes each time"])
@pytest.mark.parametrize("replay", [1e-6, 8e-6, 1e-3])
@pytest.mark.parametrize("slower", [1, 20, 1000])
def test_in_the_long_run_reviews_cost_at_most_one_percent(
    changes: bool, replay: float, slower: int
) -> None:
    """A million replays. Those that measure take many times as long, and so does a build."""
    clock, measured, build, a_look = Clock(), 48, 5e-3, 1e-4
    reviews = Reviews(clock)
    ran, choice, lost, later = 0, 0, 0.0, 0
    while ran < 1_000_000:
        if not later:
            reviews.begin("queue", ran)
            took = build + measured * replay * slower
            lost += took - measured * replay if ran else 0.0
            clock.now += took
            ran += measured
            choice += changes
            later = reviews.end(choice, ran)
        ran += later
        clock.now += later * replay + a_look
        lost += a_look
        later = reviews.look("queue", ran)
    assert lost <= 0.01 * clock.now
