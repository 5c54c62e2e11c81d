"""The numbers of a model's servers on the progress line."""

from dataclasses import replace

from llm_ocr.cli.progress import EngineMeter
from llm_ocr.engines import Load

BUSY = Load(servers=1, window=128, in_flight=120, waiting=7, answers=40, tokens_out=2000, busy=2, lost=1, restarts=1)


def test_tokens_a_second_are_those_since_it_began():
    seconds, loads = iter([0.0, 4.0]), iter([replace(BUSY, tokens_out=0), BUSY])
    meter = EngineMeter(lambda: next(loads), lambda: next(seconds))
    assert meter.words() == "500 tok/s, 120 of 128 in flight, 7 waiting, 2 busy, 1 lost, 1 restarted"


def test_what_is_zero_is_left_out():
    meter = EngineMeter(lambda: Load(servers=1, window=8), lambda: 0.0)
    assert meter.words() == "0 tok/s, 0 of 8 in flight"


def test_a_server_that_is_not_ready_is_said():
    assert EngineMeter(Load, lambda: 0.0).words() == "server starting"
    assert EngineMeter(lambda: Load(answers=3), lambda: 0.0).words() == "server restarting"
