"""`completion`: the shell's completion of `extralifectl`, from the table of actions and the daemon's programs.

A shell's script only calls this client (`extralifectl __complete WORDS`), so a new action, option or program needs no new
script. The usage line of an action gives its options and words: `level [show|why [-n N]|pin LEVEL]`.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator

from supervisor.ctl import actions
from supervisor.ctl.outcome import OK, USAGE, Failed
from supervisor.ctl.session import Session, parse

_PATIENCE_S = 2.0  # a shell must not hang while a daemon does not answer
_SIGNALS = ("HUP", "INT", "QUIT", "KILL", "TERM", "USR1", "USR2", "STOP", "CONT")
_OPTION = re.compile(r"(?<![\w-])(--?[a-zA-Z][\w-]*)(?:[ =]([A-Z0-9][\w|.]*|[\w|]+\|[\w|]+))?")
_GLOBAL = ("-c", "-s", "-u", "-p", "--state-dir", "-i", "-r", "--help", "--version")

# bash ends a word at `:`, as in unix:///run/supervisor.sock. The script joins the parts that no space separates, and offers
# only the part of a candidate after the last colon.
_BASH = """# completion of {name} for bash, made by `{name} completion bash`
_{id}() {{
    local line=$COMP_LINE rest word words=() at
    for ((at = 0; at <= COMP_CWORD; at++)); do
        word=${{COMP_WORDS[at]}} rest=${{line#"${{line%%[![:space:]]*}}"}}
        if ((at == 0)) || [[ $rest != "$line" ]]; then words+=("$word"); else words[${{#words[@]}}-1]+=$word; fi
        line=${{rest#"$word"}}
    done
    word=${{words[${{#words[@]}}-1]}}
    word=${{word%"${{word##*[:=]}}"}}
    COMPREPLY=()
    while IFS= read -r line; do
        line=${{line#"$word"}}
        [[ $line != *$'\\t'* ]] || COMPREPLY+=("$(printf '%q' "${{line%%$'\\t'*}}")")
    done < <("${{words[0]}}" __complete "${{words[@]:1}}" 2>/dev/null)
}}
complete -o default -F _{id} {names}
"""
_ZSH = """#compdef {names}
# completion of {name} for zsh, made by `{name} completion zsh`
_{id}() {{
    local -a found lines
    local line
    lines=("${{(@f)$("${{words[1]}}" __complete "${{(@)words[2,CURRENT]}}" 2>/dev/null)}}")
    for line in $lines; do
        [[ -z $line ]] || found+=("${{${{line%%$'\\t'*}}//:/\\\\:}}:${{line#*$'\\t'}}")
    done
    if (( $#found )); then _describe '{name}' found; else _files; fi
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _{id} "$@"; else compdef _{id} {names}; fi
"""
_FISH = """# completion of {name} for fish, made by `{name} completion fish`
function __fish_{id}
    set -l words (commandline -opc)
    $words[1] __complete $words[2..-1] (commandline -ct) 2>/dev/null
end
{lines}
"""
_NAMES = ("supervisorctl", "extralifectl")


def completion(session: Session, args: list[str]) -> int:
    """`completion bash|zsh|fish`.

    Print the script by which a shell completes actions, options and names of programs. deploy/install.sh installs it;
    for one user: source <(extralifectl completion bash)
    """
    scripts = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
    if len(args) != 1 or args[0] not in scripts:
        raise Failed("Error: completion takes bash, zsh or fish", USAGE)
    lines = "\n".join(f"complete -c {name} -a '(__fish_supervisorctl)'" for name in _NAMES)
    session.say(scripts[args[0]].format(name=_NAMES[0], id=_NAMES[0], names=" ".join(_NAMES), lines=lines).rstrip("\n"))
    return OK


def complete(words: list[str]) -> int:
    """Print a line for each candidate for the last of `words`: the candidate, a tab, its description."""
    *before, current = words or [""]
    try:
        options, action = parse(before)
    except Failed:
        return OK
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S)  # SIGALRM ends this process silently
    for candidate, about in candidates(Session(options), action, current):
        if candidate.startswith(current):
            print(f"{candidate}\t{about}")
    return OK


def candidates(session: Session, words: list[str], current: str) -> Iterator[tuple[str, str]]:
    """(candidate, its description) for the word behind `words`, of which the user has typed `current`."""
    if not words:
        if current.startswith("-"):
            yield from ((option, "") for option in _GLOBAL)
        else:
            yield from ((name, actions.first_sentence(name)) for name in actions.names())
        return
    if "--" in words:
        return
    if words[0] == "help":
        yield from ((name, actions.first_sentence(name)) for name in actions.names())
        return
    usage = actions.usage(words[0]) or ""
    options, plain = read_usage(usage.partition(" ")[2])
    if words[-1] in options and options[words[-1]] is not None:
        yield from ((value, "") for value in str(options[words[-1]]).split("|") if value.islower() or value[:1].isdigit())
    elif current.startswith("-"):
        yield from ((option, "") for option in (*options, "--help"))
    else:
        for word in plain:
            yield from _of(session, word)


def _of(session: Session, word: str) -> Iterator[tuple[str, str]]:
    """Candidates for the word or placeholder `word` of a usage line."""
    with contextlib.suppress(Exception):  # if the daemon does not answer, there are no candidates
        if word == "NAME":
            for view in session.client.get("/api/v1/status")["programs"]:
                yield view["name"], view["phase"]
        elif word == "BACKUP":
            for each in session.client.get("/api/v1/backups")["backups"]:
                yield each["name"], each["label"] or ""
        elif word == "LEVEL":
            for each in session.client.get("/api/v1/level")["levels"]:
                yield each["name"], ""
        elif word in {"SIG", "SIGNAL"}:
            yield from ((name, "") for name in _SIGNALS)
        elif word.islower():
            yield word, ""


def read_usage(usage: str) -> tuple[dict[str, str | None], list[str]]:
    """(options with the name of their value, if they take one; the other words) of a usage line.

    Example: `[show|pin LEVEL [--for 6h]] [--json]` has `--for` with a value, `--json` without, and show, pin, LEVEL.
    """
    own = usage.partition(" -- ")[0]
    options = {found[1]: found[2] for found in _OPTION.finditer(own)}
    rest = _OPTION.sub(" ", own)
    words = re.findall(r"(?<![\w-])[A-Za-z][A-Za-z-]*", rest)
    return options, list(dict.fromkeys(words))
