import pytest

from supervisor.features.offsite.rules import keys_of_copies
from supervisor.policy.worker.inherited import is_inherited


@pytest.mark.parametrize(
    ("variable", "repository", "env_file", "inherited"),
    [
        ("WANDB_API_KEY", "s3:host/bucket", "", True),
        ("AWS_DEFAULT_REGION", "s3:host/bucket", "", True),
        ("AWS_SECRET_ACCESS_KEY", "s3:host/bucket", "", False),
        ("AWS_SECRET_ACCESS_KEY", "s3:host/bucket", "/etc/extralife/restic.env", True),
        ("AWS_SECRET_ACCESS_KEY", "sftp:me@host:/copies", "", True),
        ("B2_ACCOUNT_KEY", "b2:bucket:dir", "", False),
        ("RESTIC_PASSWORD", "", "", False),
        ("RUNPOD_API_KEY", "", "", False),
        ("EXTRALIFE_USD_PER_HOUR", "", "", False),
        ("EXTRALIFE_STATE_DIR", "", "", True),
    ],
)
def test_a_key_of_the_daemon_reaches_no_program_and_a_key_of_a_training_does(variable, repository, env_file, inherited):
    assert is_inherited(variable, keys_of_copies(repository, env_file)) == inherited
