import math

import numpy as np
import pytest

from tuccl.errors import InputError
from tuccl.tuning.policy_training import SimulatedCall

checker = pytest.importorskip("gymnasium.utils.env_checker", reason="needs the extra `rl`")
from tuccl.tuning.rl.environment import TuningEnvironment


def test_gymnasium_finds_nothing_wrong(calls: list[SimulatedCall]) -> None:
    checker.check_env(TuningEnvironment(calls), skip_render_check=True)


def test_any_action_is_legal_and_rewarded_against_the_default(calls: list[SimulatedCall]) -> None:
    environment = TuningEnvironment(calls)
    environment.action_space.seed(3)
    timed = 0
    for number in (0, 1, 0, 1):
        call = calls[number]
        observation, _ = environment.reset(options={"call": number})
        assert np.allclose(observation, call.state.vector())
        _, reward, terminated, truncated, info = environment.step(environment.action_space.sample())
        assert terminated
        assert not truncated
        assert info["point"] in call.space
        assert reward == pytest.approx(
            math.log(call.default_us / info["us"]) if math.isfinite(info["us"]) else -10.0
        )
        timed += math.isfinite(info["us"])
    assert timed


def test_an_environment_needs_a_call() -> None:
    with pytest.raises(InputError, match="at least one call"):
        TuningEnvironment([])
