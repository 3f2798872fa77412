"""PPO by Stable-Baselines3 on the environment."""

from __future__ import annotations

from collections.abc import Sequence

from tuccl.errors import Unavailable
from tuccl.tuning.rl.environment import Call, TuningEnvironment

__all__ = ["practise"]

_STEPS = 64  # of a batch between updates


def practise(calls: Sequence[Call], steps: int, seed: int) -> None:
    """Let PPO time points of ``calls`` for ``steps`` steps, and then its best of each call.

    Raises:
        Unavailable: Stable-Baselines3 is not installed.

    Notes:
        The calls keep what was timed, so that a policy is made from it as from any search's.
    """
    try:
        from stable_baselines3 import PPO
    except ImportError:
        raise Unavailable(
            "Stable-Baselines3 is not installed; install it with: pip install 'tuccl[ppo]', or "
            "leave out --agent ppo"
        ) from None
    environment = TuningEnvironment(calls)
    model = PPO(
        "MlpPolicy",
        environment,
        n_steps=_STEPS,
        batch_size=_STEPS,
        gamma=0.0,  # one step is the whole episode
        seed=seed,
        device="cpu",
    )
    model.learn(max(steps, _STEPS))
    for number in range(len(calls)):
        observation, _ = environment.reset(options={"call": number})
        action, _ = model.predict(observation, deterministic=True)
        environment.step(action)
