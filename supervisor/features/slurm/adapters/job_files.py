"""The files of a job on the shared file system: the node's order, the batch script, the node's code and the fence."""

from __future__ import annotations

import json
import shutil
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Final

from supervisor.adapters import durable, procfs
from supervisor.adapters.process import endings, limits
from supervisor.adapters.process.processes import filled_in, make_dir, signal_number
from supervisor.features.slurm.adapters.jobs import SubmitRequest
from supervisor.features.slurm.adapters.script import OUTPUT_FILE, Tag, batch_script
from supervisor.features.slurm.settings import LauncherSettings
from supervisor.model.settings import SILENT, Paths, ProgramSpec, Progress
from workers import contract, exit_record

ORDER_FILE: Final = "order.json"
SCRIPT_FILE: Final = "job.sh"


class JobFiles:
    """Writes the files of jobs, each of them atomically."""

    def __init__(self, paths: Paths, mark: str) -> None:
        """`paths` is the result of `remote_paths`."""
        self._paths, self._mark = paths, mark
        self._code: str | None = None

    def prepare(self, request: SubmitRequest) -> None:
        """Write all files that the job needs, except its script and its fence.

        The fence is written last: from then on no older attempt may commit. Raises OSError, and ValueError for a job that
        cannot be submitted, or not as this attempt.
        """
        attempt, spec = request.attempt, request.spec
        directory = self._paths.attempt_dir(spec.name, attempt.number, attempt.token)
        make_dir(directory)
        if Path(directory, contract.EXIT_FILE).exists() or Path(directory, "claim").exists():
            raise ValueError(
                "its last job was deleted while Slurm had it back in its queue; it is submitted as another attempt"
            )
        make_dir(f"{self._paths.runtime_dir}/beats")
        endings.note_logs(self._paths, spec, attempt.number, attempt.token)
        order = node_order(self._paths, spec, attempt.number, attempt.token, request.terms.settings)
        _write(f"{directory}/{ORDER_FILE}", json.dumps(order, indent=1))

    def write_script(self, request: SubmitRequest) -> str:
        tag = Tag(self._mark, request.spec.name, request.attempt.number, request.attempt.token)
        directory = self._paths.attempt_dir(tag.program, tag.attempt, tag.token)
        # A copy of the code that runs on nodes. So a job that waits for days never runs partly upgraded code.
        if self._code is None or not Path(self._code).is_dir():
            self._code = _copy_code(self._paths.runtime_dir)
        command = (sys.executable, "-S", "-E", f"{self._code}/node.py", f"{directory}/{ORDER_FILE}")
        output = f"{directory}/".replace("%", "%%") + OUTPUT_FILE.format("%j")  # a file name pattern for sbatch
        script = batch_script(request.terms, tag, command=command, output=output)
        _write(f"{directory}/{SCRIPT_FILE}", script)
        return script

    def fence(self, program: str, token: str) -> None:
        """Let only the attempt with this token commit checkpoints. Raises OSError."""
        path = Path(self._paths.run_dir(program), contract.FENCE_FILE)
        durable.replace(path, f"{token}\n".encode("ascii"), aside=path.with_name(f"{contract.FENCE_FILE}.new"))


def node_order(paths: Paths, spec: ProgramSpec, attempt: int, token: str, settings: LauncherSettings) -> dict[str, object]:
    """The order that `node.py` reads. Raises ValueError for settings that a job cannot have."""
    if spec.user or spec.stdin:
        raise ValueError("a job runs as the user who submits it, and has no standard input: remove `user` and `stdin`")
    name, stdout = spec.name, paths.log_of(spec, "stdout") or ""
    spec = filled_in(spec, paths.run_dir(name))
    return {
        "program": name, "attempt": attempt, "token": token, "argv": list(spec.argv), "env": dict(spec.env),
        "builtin": spec.builtin, "cwd": spec.directory or paths.run_dir(name), "run_dir": paths.run_dir(name),
        "stdout": stdout, "stderr": stdout if spec.redirect_stderr else paths.log_of(spec, "stderr") or "",
        "beats": f"{paths.runtime_dir}/beats", "umask": int(spec.umask, 8) if spec.umask else procfs.umask(),
        "files": limits.GIVEN_FILES, "grace_s": spec.stop_grace_s, "done_codes": list(spec.done_codes),
        "signal_to": spec.stop_signal_to, "stop_signal": signal_number(spec.stop_signal),
        "lead_s": settings.signal_lead_s, "time_limit_s": settings.time_limit_s,
        "witness": spec.progress is Progress.AUTO or spec.progress in SILENT,
    }  # fmt: skip


def _write(path: str, text: str) -> None:
    durable.replace(Path(path), text.encode(), aside=Path(f"{path}.new"))


def _copy_code(parent: str) -> str:
    here = Path(__file__).parent
    sources = {"node.py": here / "node.py", "shim.py": here.parents[2] / "shim.py"}
    sources |= {f"{each.__name__.replace('.', '/')}.py": Path(str(each.__file__)) for each in (contract, exit_record)}
    texts = {name: path.read_bytes() for name, path in sources.items()}
    digest = blake2b(b"\0".join(texts.values()), digest_size=8).hexdigest()
    directory = Path(parent, f"code-{digest}")
    if directory.is_dir():
        return str(directory)
    aside = directory.with_suffix(".new")
    shutil.rmtree(aside, ignore_errors=True)
    for name, text in texts.items():
        make_dir((aside / name).parent)
        (aside / name).write_bytes(text)
    aside.rename(directory)
    return str(directory)
