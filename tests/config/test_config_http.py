"""[http]: a port needs a password, the password a file of its own, and no sentence shows it."""

import pytest

from supervisor import config
from supervisor.model.settings import HttpSettings

PROGRAM = "[program.Pong]\n"
PASSWORD = "correct horse battery"


SHORT = "FILE must hold one line of at least 12 characters; make one: head -c 18 /dev/urandom | base64 > FILE"


def with_password(place, text=PASSWORD + "\n", mode=0o600):
    file = place.directory / "password"
    file.write_text(text)
    file.chmod(mode)
    return file


def http(listen="127.0.0.1:9001", **more):
    return PROGRAM + "[http]\n" + "".join(f'{key} = "{value}"\n' for key, value in {"listen": listen, **more}.items())


@pytest.mark.parametrize(
    ("listen", "host", "port"),
    [("127.0.0.1:9001", "127.0.0.1", 9001), ("[::1]:1", "::1", 1), ("127.9.9.9:65535", "127.9.9.9", 65535)],
)
def test_an_address_and_its_password(place, listen, host, port):
    file = with_password(place)
    loaded = place.load(http(listen, user="me", password_file="password"))
    assert loaded.warnings == ()
    assert loaded.settings.http == HttpSettings(listen, "me", str(file), host, port, PASSWORD)
    assert PASSWORD not in repr(loaded)
    assert PASSWORD not in str(config.explain(loaded))
    client = place.load(http(listen, password_file="password"), look=False).settings.http
    assert client.password == "", "a client of another user may not read the file, and need not"


@pytest.mark.parametrize("listen", ["0.0.0.0:9001", "[::]:9001", "10.0.0.5:80"])
def test_what_is_not_encrypted_is_said(place, listen):
    with_password(place)
    (warning,) = place.load(http(listen, password_file="password")).warnings
    assert warning == (
        f"{place.file}, line 3: http.listen: {listen} is not encrypted, and the password crosses the network with every request: "
        "listen on 127.0.0.1 behind a proxy with TLS, or use ssh -L"
    )


@pytest.mark.parametrize(
    "listen", ["9001", ":9001", "localhost:9001", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:²", "::1:80", "[127.0.0.1]:80", "[::1]", "[::1:80", "::1]:80", "127.0.0.1:+80", ":80:"]
)  # fmt: skip
def test_what_is_no_address(place, listen):
    with_password(place)
    (error,) = place.errors(http(listen, password_file="password"))
    assert error == f'FILE, line 3: http.listen must be ADDRESS:PORT such as "127.0.0.1:9001", not {listen!r}'


def test_there_is_no_port_without_a_password(place):
    assert place.errors(http()) == [
        "FILE, line 3: http.listen needs http.password_file: without a password everybody could stop the programs"
    ]


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        (PASSWORD, 0o644, "other users may read FILE, which holds secrets; chmod 600 FILE"),
        ("", 0o600, SHORT),
        ("hunter2hunt\n", 0o600, SHORT),
        (PASSWORD + "\nanother one\n", 0o600, SHORT),
        ("x" * (1 << 17), 0o600, "FILE is not a text file with one password; name another one"),
    ],
)
def test_a_password_that_cannot_be_used_is_not_shown(place, text, mode, says):
    file = with_password(place, text, mode)
    said = says.replace("FILE", str(file))
    assert place.errors(http(password_file="password")) == [f"FILE, line 4: http.password_file: {said}"]
    assert PASSWORD not in said
    assert "hunter2" not in said


@pytest.mark.parametrize("user", ["", "a:b", "a\\u0007"])
def test_what_is_no_user(place, user):
    with_password(place)
    assert place.errors(http(user=user, password_file="password")) == [
        "FILE, line 4: http.user must be a name without a colon"
    ]


def test_a_kept_configuration_goes_without_the_port(place):
    file = with_password(place)
    given = place.load(http(password_file="password")).given
    file.unlink()
    found = config.load_input(given, place.environ, "the last good one")
    assert found.settings.http.password == ""
    assert found.warnings == (
        f"the last good one, line 4: http.password_file: {file} cannot be read: No such file or directory; correct the path, or its owner",
    )


def test_a_new_password_is_a_change_of_the_section(place):
    with_password(place)
    old = place.settings(http(password_file="password"))
    with_password(place, "another horse battery")
    changes = config.diff(old, place.settings(http(password_file="password")))
    assert changes.sections == ("[http]",)
    assert changes.restart == ()
