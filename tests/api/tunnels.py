"""What `ssh -L` makes of the control socket: a port of this machine."""

import contextlib
import socket
import threading
from contextlib import contextmanager


@contextmanager
def tunnel(api):
    """Yields a port of 127.0.0.1 that leads to the socket."""

    def pump(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    ends = []
    pumps = []

    def accept():
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            try:
                far.connect(str(api))
            except OSError:  # nobody serves just now: the next one may have more luck, as with ssh
                near.close()
                far.close()
                continue
            ends.extend((near, far))
            for one, other in ((near, far), (far, near)):
                pumps.append(threading.Thread(target=pump, args=(one, other), daemon=True))
                pumps[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join(10)
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    for each in pumps:
        each.join(10)
    for end in ends:
        end.close()
