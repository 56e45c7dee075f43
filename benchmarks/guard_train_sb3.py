"""Train a small agent with stable-baselines3 as its users do: the program that `guard_proof.py` puts under guard.

    python benchmarks/guard_train_sb3.py PPO --steps 12288 --lr 1e-3 --out result.json
    td-loop guard run -- python benchmarks/guard_train_sb3.py PPO --steps 12288 --lr 3e-2 --out result.json

Of the guard it knows what the head of `td_loop.guard.adapters.sb3` says: it goes on from `resume_path()`, scales
its rate, seeds itself, and hands over the callback. Without a guard it trains the same way. At its end the policy
plays without exploring, and `--out` receives the mean return, the rate, and a digest of the policy. One thread, on
the CPU.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from td_loop.guard.adapters.sb3 import GuardCallback, resume_path, scaled, seed

# Those of rl-baselines3-zoo, but that PPO has batches of 64, and SAC a smaller network.
PPO_SETTINGS = {
    "n_steps": 32,
    "batch_size": 64,
    "n_epochs": 20,
    "gae_lambda": 0.8,
    "gamma": 0.98,
    "clip_range": lambda left: 0.2 * left,
}
DQN_SETTINGS = {
    "learning_starts": 1000,
    "batch_size": 64,
    "train_freq": 256,
    "gradient_steps": 128,
    "target_update_interval": 10,
    "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
    "policy_kwargs": {"net_arch": [256, 256]},
}
ALGORITHMS: dict[str, tuple[Any, str, int, dict[str, Any]]] = {
    "PPO": (PPO, "CartPole-v1", 8, PPO_SETTINGS),
    "DQN": (DQN, "CartPole-v1", 1, DQN_SETTINGS),
    "SAC": (SAC, "Pendulum-v1", 1, {"policy_kwargs": {"net_arch": [64, 64]}}),
}
"""Class, environment, how many of it at once, settings."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", choices=sorted(ALGORITHMS))
    parser.add_argument("--steps", type=int, required=True, help="steps of the environment at which training ends")
    parser.add_argument("--lr", type=float, required=True, help="learning rate; that of PPO falls to 0, linearly")
    parser.add_argument("--restart-lr", type=float, help="a rate that PPO's rises to once more, to fall anew")
    parser.add_argument("--restart-at", type=int, default=0, help="the step of that (0)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=10, help="episodes that the trained policy plays (10)")
    parser.add_argument("--out", type=Path, required=True, help="JSON file for what it came to")
    args = parser.parse_args()

    torch.set_num_threads(1)
    algorithm, name, envs, settings = ALGORITHMS[args.algorithm]
    env = make_vec_env(name, envs)
    restart = args.lr if args.restart_lr is None else args.restart_lr
    again = 1 - args.restart_at / args.steps

    def falling(left: float) -> float:
        """The rate, by the share of training that is left."""
        return restart * left / again if left <= again else args.lr * left

    ours = {
        "learning_rate": scaled(falling if args.algorithm == "PPO" else args.lr),
        "seed": seed(args.seed),
        "device": "cpu",
    }
    if path := resume_path():
        model = algorithm.load(path, env, **ours)
    else:
        model = algorithm("MlpPolicy", env, **settings, **ours)
    model.learn(args.steps - model.num_timesteps, GuardCallback(), reset_num_timesteps=False)

    test = make_vec_env(name, 1, seed=1000)
    returns, _ = evaluate_policy(model, test, args.episodes, return_episode_rewards=True)
    policy = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.policy.parameters()))
    found = {"return": sum(returns) / len(returns), "rate": scaled(restart), "policy": policy.hexdigest()}
    args.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
