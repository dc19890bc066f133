"""A CleanRL script as a peer of bench/throughput.py, unchanged, run in the peers' environment: prints one JSON line.

    peer_cleanrl.py DIRECTORY dqn_atari|ppo_atari_envpool|pqn_atari_envpool SETTLE_S SECONDS [arguments of the script]

The scripts were written for older libraries (gym, envpool 0.8, gymnasium 0.29). This file restores the old names of renamed
objects. It replaces TensorBoard's writer by our clock, which each script calls with its own "charts/SPS". The scripts
themselves run unchanged.
"""

import json
import os
import runpy
import sys
import time
import types

SETTLE_S = SECONDS = 0.0


class Clock:
    """Replaces SummaryWriter: ends the script once the measurement is complete."""

    def __init__(self, *_args, **_kwargs):
        self.begun = self.first = None

    def add_scalar(self, name, _value, step, *_args, **_kwargs):
        if name != "charts/SPS":
            return
        now = (time.perf_counter(), time.process_time(), step)
        self.begun = self.begun or now
        if self.first is None:
            if now[0] - self.begun[0] >= SETTLE_S:
                self.first = now
        elif now[0] - self.first[0] >= SECONDS:
            wall_s, cpu_s, steps = (after - before for before, after in zip(self.first, now, strict=True))
            figures = {"steps_per_s": steps / wall_s, "steps_per_cpu_s": steps / cpu_s}
            sys.__stdout__.write("\n" + json.dumps(figures) + "\n")
            sys.__stdout__.flush()
            os._exit(0)

    def add_text(self, *_args, **_kwargs):
        pass

    def close(self):
        pass


def put_back_what_was_renamed():
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    wrappers = gymnasium.wrappers
    for old, new in (("GrayScaleObservation", "GrayscaleObservation"), ("FrameStack", "FrameStackObservation")):
        if not hasattr(wrappers, old):
            setattr(wrappers, old, getattr(wrappers, new))
    sync = gymnasium.vector.SyncVectorEnv
    if hasattr(gymnasium.vector, "AutoresetMode"):  # the scripts expect resets within the step, and `final_observation`

        class SameStep(sync):
            def __init__(self, env_fns):
                super().__init__(env_fns, autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP)

            def step(self, actions):
                obs, rewards, ended, cut, infos = super().step(actions)
                if "final_obs" in infos:
                    infos["final_observation"] = infos["final_obs"]
                infos.pop("final_info", None)  # this benchmark does not count episodes
                return obs, rewards, ended, cut, infos

        gymnasium.vector.SyncVectorEnv = SameStep
    sys.modules["torch.utils.tensorboard"] = types.SimpleNamespace(SummaryWriter=Clock)


def put_back_gym():
    """Restore envpool's old gym interface, (obs, reward, done, info), on top of the new one."""
    import envpool
    import gymnasium

    class Wrapper:
        def __init__(self, env):
            self.env = env

        def __getattr__(self, name):
            return getattr(self.env, name)

        def reset(self, **kwargs):
            return self.env.reset(**kwargs)

        def step(self, action):
            return self.env.step(action)

    class Old:
        def __init__(self, env):
            self._env = env
            self.num_envs, self.is_vector_env = env.config["num_envs"], True
            self.action_space, self.observation_space = env.action_space, env.observation_space

        def reset(self):
            return self._env.reset()[0]

        def step(self, actions):
            obs, rewards, ended, cut, info = self._env.step(actions)
            return obs, rewards, ended | cut, info

    make = envpool.make
    envpool.make = lambda task, env_type, **options: Old(make(task, env_type="gymnasium", **options))  # noqa: ARG005
    sys.modules["gym"] = types.SimpleNamespace(Wrapper=Wrapper, spaces=gymnasium.spaces)


def main():
    global SETTLE_S, SECONDS
    directory, name = sys.argv[1], sys.argv[2]
    SETTLE_S, SECONDS = float(sys.argv[3]), float(sys.argv[4])
    script = os.path.join(directory, "cleanrl", f"{name}.py")
    sys.path.insert(0, directory)
    put_back_what_was_renamed()
    if name.endswith("envpool"):
        put_back_gym()
    sys.argv = [script, *sys.argv[5:]]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
