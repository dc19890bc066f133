"""Event files, read back as TensorBoard reads them."""

import struct

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData
from tensorboardX.record_writer import masked_crc32c

from workers import metrics


def records(data):
    """The whole records of an event file; it may end in a torn one."""
    at = 0
    while at + 12 <= len(data):
        length, crc = struct.unpack_from("<QI", data, at)
        if at + 16 + length > len(data):
            return
        assert crc == masked_crc32c(data[at : at + 8])
        body = data[at + 12 : at + 12 + length]
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked_crc32c(body)
        yield Event.FromString(body)
        at += 16 + length


def curve(run_dir, tag):
    """(step, value) of one curve as TensorBoard shows it: files by name; a START forgets what lies at or beyond it."""
    points = []
    for path in sorted((run_dir / metrics.METRICS_DIR).iterdir()):
        for number, event in enumerate(records(path.read_bytes())):
            if number == 0:
                assert event.file_version == "brain.Event:2"
            elif event.session_log.status == SessionLog.START:
                points = [(step, value) for step, value in points if step < event.step]
            else:
                points += [(event.step, value.simple_value) for value in event.summary.value if value.tag == tag]
    return points


def settings_of(path):
    """The settings and the names of the results in an event file, as TensorBoard's table HPARAMS shows them."""
    values, results = {}, []
    for event in records(path.read_bytes()):
        for value in event.summary.value:
            data = HParamsPluginData.FromString(value.metadata.plugin_data.content)
            if value.tag.startswith("_hparams_/"):
                assert value.metadata.plugin_data.plugin_name == "hparams"
                results += [each.name.tag for each in data.experiment.metric_infos]
                for name, held in data.session_start_info.hparams.items():
                    values[name] = getattr(held, held.WhichOneof("kind"))
    return values, results
