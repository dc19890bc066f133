"""The environment that the daemon gives to a worker, below a test's directory."""

import time

from workers import contract

TOKEN, OTHER = "ab" * 16, "cd" * 16
PATIENCE_S = 30.0


def environment(tmp_path, **more):
    return {
        contract.ENV_BEAT: str(tmp_path / "beat"), contract.ENV_CONTROL: str(tmp_path / "control"),
        contract.ENV_TOKEN: TOKEN, contract.ENV_ATTEMPT: "3", contract.ENV_PROGRAM: "Pong",
        contract.ENV_RUN_DIR: str(tmp_path / "run"), **more,
    }  # fmt: skip


def environment_of(run_dir, number, program="Catch"):
    """As the daemon gives it to an attempt, whose fence is there."""
    token = f"{number:032x}"
    run_dir.mkdir(exist_ok=True)
    (run_dir / contract.FENCE_FILE).write_text(token)
    return environment(run_dir, **{
        contract.ENV_RUN_DIR: str(run_dir), contract.ENV_TOKEN: token, contract.ENV_ATTEMPT: str(number),
        contract.ENV_PROGRAM: program,
    })  # fmt: skip


def eventually(holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
