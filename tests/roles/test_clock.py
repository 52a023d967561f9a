from podium.roles.clock import LAST, LEAST, NO_LIMITS, Clock


def test_an_evaluation_may_take_what_is_left_of_the_run_but_a_moment_at_least() -> None:
    clock = Clock(60.0, 100.0)
    assert clock.left(0.0) == (60.0, False)
    assert clock.left(70.0) == (30.0, True)
    assert clock.left(99.0) == (LAST * 100, True)
    assert clock.left(500.0) == (LAST * 100, True), "the last one"
    assert Clock(60.0, 5.0).left(4.9) == (LEAST, True)
    assert Clock(0.5, 5.0).left(4.9) == (0.5, False)
    assert NO_LIMITS.left(1e9) == (float("inf"), False)


def test_a_run_without_a_limit_is_never_over() -> None:
    assert not NO_LIMITS.over(1e12) and not Clock(1.0, 5.0).over(4.9) and Clock(1.0, 5.0).over(5.0)


def test_the_log_names_the_limit_that_was_reached() -> None:
    clock, rest = Clock(60.0, 100.0), "3 of 20 episodes had ended"
    stands = "the others count as they stand"
    assert clock.note(3, 20, False, True) == f"evaluation was cut by eval.seconds=60: {rest}; {stands}"
    assert clock.note(3, 20, True, True) == f"evaluation was cut by stop.seconds=100: {rest}; {stands}"
    assert clock.note(3, 20, True, False) == f"evaluation was cut by stop.seconds=100: {rest}; it does not count"
