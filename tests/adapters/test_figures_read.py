"""Figures from real logs, JSON lines and event files: read by a real child process, and whatever happens to the files."""

import json
import math
import os
import struct
import time
from pathlib import Path

import pytest
from fakes import FakeClock
from tensorboardX import SummaryWriter

from supervisor.adapters import procfs, tfrecord
from supervisor.adapters.figures import reading, thread
from supervisor.adapters.figures.reading import read_once
from supervisor.adapters.figures.thread import FigureReader
from supervisor.adapters.logs import rotate
from supervisor.model.settings import Paths, ProgramSpec
from supervisor.policy.script.figures import CSV, EVENTS, JSON_LINES, LOG, FigureRow, Figures, Sources, after

CLEANRL = r"global_step=(?P<step>\d+), episodic_return=(?P<episode_return>\S+)"
TOKEN = "ab" * 16
OUTPUTS = Path(__file__).with_name("outputs")  # what real programs have written


class Place:
    """The files of one program, looked at as the daemon does: what was read up to where goes back and forth as JSON."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "stdout.log"
        self.since_wall_s = time.time() - 1.0
        self.regex, self.names, self.begin = [CLEANRL], {}, {str(self.log): 0}
        self.globs = {"json": "", "csv": "", "events": ""}
        self.cursors, self.files, self.searched = {}, {}, False
        self.opened = []  # what the worker has open

    def look(self):
        asked = {
            "logs": [str(self.log)], "opened": self.opened, "regex": self.regex, "off": [], "begin": self.begin, "globs": self.globs,
            "names": self.names, "base": str(self.root), "since_wall_s": self.since_wall_s, "search": True,
            "first": not self.searched, "files": self.files, "cursors": self.cursors,
            "name": "mine", "user": "", "places": [], "contested": False, "trees": {}, "watch": False, "claims": {},
        }  # fmt: skip
        said = json.loads(reading.as_json(read_once(json.loads(json.dumps(asked)))))
        self.cursors, self.files, self.searched = said["cursors"], said["files"], True
        for _, _, _, values in said["rows"]:
            values.update({name: str(value) for name, value in values.items() if not math.isfinite(value)})
        return said

    def rows(self):
        return [(rank, whole, values) for rank, _, whole, values in self.look()["rows"]]

    def steps(self):
        return [values["step"] for _, _, values in self.rows()]

    def say(self, *steps, end="\n"):
        with self.log.open("a") as file:
            file.write("".join(f"global_step={step}, episodic_return=[21.]{end}" for step in steps))


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_lines_of_a_log_as_they_are_written(place):
    assert place.rows() == [], "there is no log yet"
    place.say(4, 8)
    with place.log.open("a") as file:
        file.write("a warning\nglobal_step=1")
    assert place.rows() == [
        (LOG, True, {"step": 4.0, "episode_return": 21.0}),
        (LOG, True, {"step": 8.0, "episode_return": 21.0}),
    ]
    assert place.rows() == [], "the last line has no end yet"
    with place.log.open("a") as file:
        file.write("2, episodic_return=[nan]\r\n")
    assert place.rows() == [(LOG, True, {"step": 12.0, "episode_return": "nan"})]


def test_numbers_in_colours_with_units_and_texts_that_are_no_number(place):
    place.regex = [r"step=(?P<step>\d+)", r"^at (?P<target>\w+), loss (?P<loss>\S+)"]
    place.log.write_text(
        "\x1b[32mstep\x1b[0m=\x1b[1m1.5k\x1b[0m\nstep=2,500, x\nstep=1_000\nstep=5,100,7\nat full, loss low\n"
    )
    said = place.look()
    assert [values["step"] for *_, values in said["rows"]] == [1500.0, 2500.0, 1000.0, 5.0]
    assert (said["lines"], said["matched"]) == (5, [0, 1])
    assert said["odd"] == {"target": [place.regex[1], "full"], "loss": [place.regex[1], "low"]}


def test_a_progress_bar_is_redrawn_without_line_ends(place):
    place.regex = [r"(?P<step>\d+)/(?P<total>\d+) \[", r"'loss': (?P<loss>[^,}]+)"]
    place.log.write_text("  2%|x  | 10/500 [00:01\r  4%|xx | 20/500 [00:02\r{'loss': inf, 'epoch': 1.0}\r  6%|xx | 30/5")
    assert [values for _, _, values in place.rows()] == [
        {"step": 10.0, "target": 500.0},
        {"step": 20.0, "target": 500.0},
        {"loss": "inf"},
    ]


HF_SHORT = r"(?P<step>\d+)/(?P<target>\d+) \["


@pytest.mark.parametrize("expression", [r"^ *\d+%[|][^|]*[|] (?P<step>\d+)/(?P<target>\d+) \[", HF_SHORT])
def test_of_the_bars_that_transformers_draws_only_that_of_the_training_counts(place, expression):
    """60 steps, three evaluations of 32, four times "Writing model shards: 1/1", an evaluation at the end."""
    place.regex = [expression]
    place.log.write_bytes((OUTPUTS / "hf_trainer.stderr").read_bytes())
    known = after(Figures(), [FigureRow(rank, 0.0, values, whole) for rank, whole, values in place.rows()])
    assert (known.steps, known.target, known.bar.first_steps[0]) == (60, 60, 0)


def test_what_lies_before_the_attempt_is_of_earlier_ones(place):
    place.say(1, 2)
    place.begin = {str(place.log): place.log.stat().st_size}
    place.say(3)
    assert place.rows() == [(LOG, True, {"step": 3.0, "episode_return": 21.0})]


def test_a_log_that_is_rotated_emptied_or_replaced_is_read_from_its_beginning(place):
    place.say(*range(100))
    assert place.steps() == list(range(100))
    assert rotate(place.log, 10, backups=1)
    place.say(100)
    assert place.rows() == [(LOG, False, {"step": 100.0, "episode_return": 21.0})]
    place.log.unlink()
    place.say(*range(101, 140))
    assert place.steps() == list(range(101, 140))
    place.log.write_text("")
    place.say(*range(200, 300))  # longer than it was, but not the same lines
    assert place.steps() == list(range(200, 300))


def test_a_log_that_was_taken_away_is_read_on_through_the_descriptor_of_its_worker(place):
    """logrotate without copytruncate: the worker goes on writing into the file that was renamed."""
    with place.log.open("w") as worker:
        place.opened = [f"/proc/{os.getpid()}/fd/0", f"/proc/{os.getpid()}/fd/{worker.fileno()}"]
        line = "global_step={}, episodic_return=[21.]\n"
        for step, take_away in ((1, lambda: None), (2, lambda: place.log.rename(f"{place.log}.1")), (3, place.log.touch)):
            take_away()
            print(line.format(step), end="", file=worker, flush=True)
            assert place.rows() == [(LOG, True, {"step": step, "episode_return": 21.0})]
        place.cursors = {}
        assert place.steps() == [1, 2, 3], "nor does it take a daemon that has seen it in place"
    place.log.write_text(line.format(4))
    assert place.steps() == [4], "the worker has gone"


def test_a_flood_is_passed_over_up_to_its_newest_part(place):
    place.say(*range(60_000))
    assert place.log.stat().st_size > reading.BEHIND_BYTES
    found = place.rows()
    assert found[0] == (LOG, True, {"step": 0.0, "episode_return": 21.0}), "the first step is known all the same"
    assert found[-1] == (LOG, False, {"step": 59_999.0, "episode_return": 21.0})
    assert len(found) <= reading.MOST_ROWS + 1


@pytest.mark.timeout(120)
def test_a_regular_expression_that_backtracks_for_ever_costs_moments(place):
    place.regex = ["(a+)+(?P<loss>b)$", CLEANRL]
    place.log.write_text("a" * 60 + "\n")
    place.say(7)
    before_s = time.process_time()
    said = place.look()
    assert said["slow"] == [0]
    assert [values for *_, values in said["rows"]] == [{"step": 7.0, "episode_return": 21.0}]
    assert time.process_time() - before_s < 3.0


def test_json_lines_and_what_their_keys_mean(place):
    place.globs["json"] = "runs/*.jsonl"
    file = place.root / "runs" / "metrics.jsonl"
    file.parent.mkdir()
    assert place.rows() == []
    file.write_text(
        '{"step": 1, "train": {"loss": NaN, "lr": 0.5}, "done": true, "note": "x", "timestamp": 1.7e9}\n'
        '[1, 2]\nno JSON {\n{"step": 2, "eval": {"reward": 3}, "rss_bytes": 5, "huge": 1' + "0" * 400 + "}\n" + '{"step": 3'
    )
    said = place.look()
    assert said["rows"] == [
        [JSON_LINES, 1.7e9, True, {"step": 1.0, "loss": "nan", "train/lr": 0.5}],
        [JSON_LINES, None, True, {"step": 2.0, "eval/reward": 3.0}],
    ]
    with file.open("a") as more:
        more.write(', "eval": {"reward": 4}, "return": 9, "other": {"a": {"b": {"c": 1}}}}\n')
    place.names = {"mean_return": "eval/reward"}
    assert place.rows() == [(JSON_LINES, True, {"step": 3.0, "mean_return": 4.0})], "the configuration's word counts"


def test_a_file_that_goes_on_from_an_earlier_attempt(place):
    place.globs["json"] = "m.jsonl"
    file = place.root / "m.jsonl"
    file.write_text('{"step": 900}\n')
    os.utime(file, (time.time() - 3600,) * 2)
    assert place.rows() == []
    with file.open("a") as more:
        more.write('{"step": 850}\n')
    assert place.rows() == [(JSON_LINES, True, {"step": 850.0})]
    file.write_text('{"step": 1}\n')
    assert place.rows() == [(JSON_LINES, False, {"step": 1.0})]
    os.utime(file, (time.time() - 3600,) * 2)
    place.cursors, place.files, place.searched = {}, {}, False  # the next attempt writes it anew
    place.look()
    file.write_text('{"step": 5}')
    with file.open("a") as more:
        more.write("\n")
    assert place.rows() == [(JSON_LINES, True, {"step": 5.0})], "its own beginning"


@pytest.mark.parametrize("made_before", [False, True])
def test_a_file_that_was_there_at_the_first_look_is_of_this_attempt_if_it_was_made_since_its_start(place, made_before):
    place.globs["json"] = "m.jsonl"
    with (place.root / "m.jsonl").open("w") as file:
        if made_before:
            place.since_wall_s = reading.made_s(file.fileno()) + 0.001
        file.write('{"step": 900}\n')
    os.utime(place.root / "m.jsonl", (place.since_wall_s + 1.0,) * 2)  # the kernel's clock of files has ticks of 4 ms
    assert place.rows() == [(JSON_LINES, not made_before, {"step": 900.0})]


def test_a_file_that_is_replaced_by_one_with_the_same_rows_goes_on_where_it_was(place):
    place.globs["json"] = "m.jsonl"
    place.look()
    rows = ""
    for step in (5, 6, 7):
        rows += f'{{"step": {step}}}\n'
        (place.root / "aside").write_text(rows)
        (place.root / "aside").replace(place.root / "m.jsonl")
        if step == 7:  # a later attempt, as the daemon asks for it
            place.cursors = {path: cursor | {"whole": True, "fresh": True} for path, cursor in place.cursors.items()}
            place.searched = False
        assert place.rows() == [(JSON_LINES, True, {"step": float(step)})]


def write_events(directory, count=5, tag="charts/episodic_return", from_step=0):
    writer = SummaryWriter(str(directory), flush_secs=1)
    for place in range(count):
        writer.add_scalar(tag, float(place), from_step + 10 * place)
    writer.close()
    return next(iter(Path(directory).iterdir()))


def test_event_files_of_tensorboardx(place):
    place.globs["events"] = "runs/**/events.out.tfevents.*"
    place.look()
    path = write_events(place.root / "runs" / "a" / "b")
    said = place.look()
    assert [(rank, whole, values) for rank, _, whole, values in said["rows"]] == [
        (EVENTS, False, {"step": 10.0 * value, "episode_return": value}) for value in (0.0, 1.0, 2.0, 3.0, 4.0)
    ]
    assert all(abs(at_s - time.time()) < 60 for _, at_s, *_ in said["rows"])
    assert place.rows() == []
    data = path.read_bytes()
    path.write_bytes(data + data[: len(data) // 2])  # other records behind it, the last one is cut
    assert len(place.rows()) in {2, 3}
    place.names = {"step": "losses/value", "loss": "losses/value2"}  # only the named curve's axis counts
    write_events(place.root / "runs" / "c", count=1, tag="losses/value", from_step=500)
    write_events(place.root / "runs" / "d", count=1, tag="losses/value2", from_step=3)
    assert [values for _, _, values in place.rows()] == [{"step": 500.0}, {"loss": 0.0}]


def test_damaged_and_cut_event_files(place):
    place.globs["events"] = "*.v2"
    place.look()
    data = write_events(place.root / "runs", count=20).read_bytes()
    file = place.root / "events.v2"
    frames = tfrecord.records(data, 1 << 20).messages
    first = frames[1][0] - 12  # the first record is the version
    for cut in range(0, len(data), 7):
        file.write_bytes(data[:cut])
        place.cursors = {}
        assert len(place.rows()) == max(0, sum(end + 4 <= cut for _, end in frames) - 1)
    bad = bytearray(data)
    bad[first + 2] ^= 0xFF  # a length
    file.write_bytes(bad)
    place.cursors = {}
    said = place.look()
    assert len(said["rows"]) == 19, "the records beyond it are found again"
    assert "damaged" in said["notes"][0]
    bad = bytearray(data)
    bad[frames[5][0] + 11] ^= 0xFF  # inside of a message
    file.write_bytes(bad)
    place.cursors = {}
    said = place.look()
    assert len(said["rows"]) == 19
    assert "wrong checksum" in said["notes"][0]


def test_scalars_that_tensorflow_and_jax_write_as_tensors():
    def field(number, kind, data):
        key = bytes([number << 3 | kind])
        return key + (bytes([len(data)]) if kind == 2 else b"") + data

    def message(tensor, step=b"\x10\x2a"):
        value = field(1, 2, b"train/loss") + field(9, 2, b"\x0a\x00") + field(8, 2, tensor)
        return field(1, 1, struct.pack("<d", 1.7e9)) + step + field(5, 2, field(1, 2, value))

    def said(tensor, **more):
        data = message(tensor, **more)
        return tfrecord.event(data, 0, len(data))

    assert said(b"\x08\x01" + field(4, 2, struct.pack("<f", 0.5))) == (1.7e9, 42, {"train/loss": 0.5})
    assert said(b"\x08\x02" + field(6, 2, struct.pack("<d", 0.25))).scalars == {"train/loss": 0.25}
    assert said(b"\x08\x01" + field(5, 5, struct.pack("<f", 0.125))).scalars == {"train/loss": 0.125}
    assert said(b"\x08\x09" + field(4, 2, struct.pack("<q", 7))).scalars == {"train/loss": 7.0}
    assert said(b"\x08\x07" + field(4, 2, b"text")) is None, "a text is no scalar"
    assert said(b"\x08\x01" + field(5, 5, bytes(4)), step=b"\x10" + b"\xff" * 9 + b"\x01") is None, "a negative step"


def test_a_table_as_stable_baselines_and_lightning_write_it(place):
    place.globs["csv"] = "**/*.csv"
    place.look()
    table = place.root / "progress.csv"
    table.write_text("rollout/ep_rew_mean,time/total_timesteps,train/loss,train/n_updates\n,2048,,\n")
    assert place.rows() == [(CSV, True, {"step": 2048.0})], "an empty cell says nothing"
    with table.open("a") as file:
        file.write("21.5,4096,0.25,10\r\n22.5,61")
    assert place.rows() == [(CSV, True, {"mean_return": 21.5, "step": 4096.0, "loss": 0.25, "train/n_updates": 10.0})]
    with table.open("a") as file:
        file.write("44,nan,20\n1,2\n\n")
    assert place.rows() == [(CSV, True, {"mean_return": 22.5, "step": 6144.0, "loss": "nan", "train/n_updates": 20.0})]


def test_a_table_that_gets_a_new_column_is_written_anew_and_read_anew(place):
    place.globs["csv"] = "metrics.csv"
    place.look()
    table = place.root / "metrics.csv"
    table.write_text("epoch,step,train_loss\n0,49,1.5\n")
    assert place.steps() == [49.0]
    table.write_text("epoch,step,train_loss,val_loss\n0,49,1.5,\n0,99,,0.75\n")
    assert place.rows()[-1] == (CSV, False, {"epoch": 0.0, "step": 99.0, "val_loss": 0.75})


@pytest.mark.parametrize("mark", [";", "\t"])
def test_a_script_that_begins_anew_in_its_table_names_its_columns_again(place, mark):
    place.globs["csv"] = "*.csv"
    place.look()
    lines = ["step,loss", "1,0.5", "loss,step", '0.25,"2"', ",", "1,3", "so,so,so", "7"]
    (place.root / "a.csv").write_bytes(b"\xef\xbb\xbf" + "\n".join(lines).replace(",", mark).encode() + b"\n\x00\xff\n")
    assert [values for _, _, values in place.rows()] == [
        {"step": 1.0, "loss": 0.5},
        {"step": 2.0, "loss": 0.25},
        {"step": 3.0, "loss": 1.0},
    ]


def test_files_that_are_not_to_be_read(place, monkeypatch):
    place.globs["json"] = "*.jsonl"
    place.look()
    os.mkfifo(place.root / "fifo.jsonl")
    secret = place.root / "secret"
    secret.write_text('{"step": 1}\n')
    (place.root / "link.jsonl").symlink_to(secret)
    said = place.look()
    assert said["rows"] == []
    assert len(said["notes"]) == 2
    assert all("cannot be read" in note for note in said["notes"])
    (place.root / "other.jsonl").write_text('{"step": 1}\n')
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert any("belongs to another user" in note for note in place.look()["notes"])


# --- the thread and its child ------------------------------------------------------------------------------------------------


class Scene:
    def __init__(self, root: Path, monkeypatch) -> None:
        monkeypatch.setattr(thread, "LOOK_S", 0.05)
        monkeypatch.setattr(thread, "LOOK_SHARE", 1.0)
        self.paths = Paths(str(root / "state"), str(root / "run"))
        self.clock = FakeClock(at_s=1000.0)
        self.specs = {}
        self.reader = FigureReader(self.paths, self.clock, self.specs.get)
        self.log = Path(self.paths.log("mine", "stdout"))
        self.log.parent.mkdir(parents=True)

    def watch(self, token=TOKEN, logs_from=(0, 0), **sources):
        self.specs["mine"] = spec = ProgramSpec("mine", ("x",), "d", figures=Sources(**sources))
        self.reader.watch(spec, token, thread.began_wall_s(procfs.read_stat(os.getpid()).start_ticks), logs_from)

    def until(self, seen, token=TOKEN):
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s:
            told = self.reader.newest("mine", token)
            if told is not None and seen(told):
                return told
            time.sleep(0.01)
        raise AssertionError(self.reader.newest("mine", token))


@pytest.fixture
def scene(tmp_path, monkeypatch):
    made = Scene(tmp_path, monkeypatch)
    yield made
    made.reader.stop()


def test_the_thread_reads_what_is_written_and_the_last_line_when_all_is_over(scene, monkeypatch):
    monkeypatch.setattr(thread, "_LAST_LOOK_S", 60.0)  # a busy machine may take longer than a start waits
    monkeypatch.setattr(thread, "_LAST_STEP_S", 60.0)
    scene.log.write_text("global_step=1, episodic_return=[1.]\n")
    begin = scene.log.stat().st_size
    scene.watch(logs_from=(begin, 0), log_regex=(CLEANRL,))
    assert scene.until(lambda told: True).figures.steps is None
    with scene.log.open("a") as file:
        file.write("global_step=40, episodic_return=[10.]\nglobal_step=80, episodic_return=[20.]\n")
    told = scene.until(lambda told: told.figures.steps == 80)
    assert (told.figures.first_steps[0], told.figures.values["mean_return"], told.fault) == (40, 15.0, "")
    assert told.shows_progress(1000.0)
    assert not told.shows_progress(1061.0), "nobody has looked for a minute"
    assert scene.reader.newest("mine", "cd" * 16) is None
    with scene.log.open("a") as file:
        file.write("global_step=120, episodic_return=[20.]\n")
    assert scene.reader.last("mine", TOKEN, 0.0, None).steps == 120
    scene.reader.forget("mine", TOKEN)
    assert scene.reader.newest("mine", TOKEN) is None
