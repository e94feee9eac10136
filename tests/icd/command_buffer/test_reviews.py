"""When a choice is measured again: after how many replays, and how much time."""

from __future__ import annotations

import pytest

from fairlead.icd.command_buffer.reviews import FIRST, MOST, Chosen, Reviews


class Clock:
    """Seconds that the test says."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


A, B = Chosen("a", {}), Chosen("b", {})


def test_reviews_that_confirm_the_choice_become_rarer() -> None:
    reviews, ran, waits = Reviews(Clock()), 20, list[int]()
    for _ in range(9):
        waits.append(reviews.end(A, ran))
        reviews.begin(ran + waits[-1])
        ran += waits[-1] + 20
    assert waits == [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST, 16 * FIRST, *[MOST] * 4]
    assert reviews.end(B, ran) == FIRST


def test_what_is_left_to_others_is_part_of_the_choice() -> None:
    reviews = Reviews(Clock())
    reviews.end(Chosen("a", {"direct": [1]}), 0)
    reviews.begin(FIRST)
    assert reviews.end(Chosen("a", {"direct": [1, 2]}), FIRST) == FIRST


def test_a_review_takes_one_percent_of_the_replays() -> None:
    reviews = Reviews(Clock())
    reviews.end(A, 20)
    reviews.begin(10_000)
    assert reviews.end(B, 10_100) == 10_000


def test_a_review_takes_one_percent_of_the_time() -> None:
    clock = Clock()
    reviews = Reviews(clock)
    reviews.end(A, 20)
    assert reviews.postpone() == 0  # what it takes is not known yet
    reviews.begin(3000)
    clock.now = 2.0
    assert reviews.end(A, 3020) == 2 * FIRST
    clock.now += 199
    assert [reviews.postpone(), reviews.postpone()] == [2 * FIRST, 4 * FIRST]
    clock.now += 1
    assert reviews.postpone() == 0


def test_after_a_pause_in_a_review_the_next_one_comes_nevertheless() -> None:
    clock = Clock()
    reviews = Reviews(clock)
    reviews.end(A, 20)
    reviews.begin(3000)
    clock.now = 1e9
    reviews.end(A, 3020)
    looks = 0
    while reviews.postpone():
        looks += 1
    assert looks == 10


@pytest.mark.parametrize("first", [A, B])
def test_only_an_open_review_ends(first: Chosen) -> None:
    reviews = Reviews()
    assert reviews.is_open and reviews.chosen is None
    reviews.end(first, 0)
    assert not reviews.is_open and reviews.chosen == first
