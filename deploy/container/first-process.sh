#!/usr/bin/env bash
# Sourced by scripts that may be a container's first process (entrypoint, deploy/try). Bash runs a trap only between two commands,
# and the kernel ignores signals of pid 1 that have no handler. So each long command runs in the background, in a process group of
# its own, while this shell waits. As pid 1, bash also reaps the container's orphans.
asked='' child='' interrupted=''

on_signal() {
    interrupted=yes
    [[ $1 == HUP || $1 == USR2 ]] || asked=$1
    [[ -z $child ]] || kill -s "$1" -- "$child" 2>/dev/null || true
}
act_as_first_process() {
    local each
    set -m
    for each in TERM INT QUIT HUP USR2; do
        # shellcheck disable=SC2064  # the name of now
        trap "on_signal $each" "$each"
    done
}

# await PID: wait until this child ends. Exit status: that of the child. A signal ends each `wait` early.
await() {
    local status=0 next
    while interrupted=''; do
        next=0
        wait "$1" 2>/dev/null || next=$?
        ((next == 127)) || status=$next # 127: the wait before has returned its status
        [[ -n $interrupted && $next != 127 ]] || return "$status"
    done
}

# run COMMAND...: at a signal, end the command with all its processes, and this script.
run() {
    local status=0
    "$@" </dev/null &
    child=-$!
    [[ -z $asked ]] || kill -s TERM -- "$child" 2>/dev/null || true
    await "${child#-}" || status=$?
    if [[ -n $asked ]]; then
        kill -s KILL -- "$child" 2>/dev/null || true # what does not end at SIGTERM
        exit 143
    fi
    child=''
    return "$status"
}

# keep COMMAND...: run the daemon, and start it again whenever it ends, as the unit's Restart=always does: after 0.5 s, and after
# 1, 2, 4 ... 60 s if it ended more than once within ten minutes. It returns the daemon's exit status after SIGTERM, after
# `extralifectl shutdown` (100), and if the first start is refused (1, 2).
keep() {
    local status each starts=() recent pause
    while :; do
        recent=()
        for each in "${starts[@]}"; do ((SECONDS - each >= 600)) || recent+=("$each"); done
        starts=("${recent[@]}" "$SECONDS")
        EXTRALIFE_KEPT=yes "$@" </dev/null &
        child=$!
        [[ -z $asked ]] || kill -s TERM "$child" 2>/dev/null || true
        status=0
        await "$child" || status=$?
        child=''
        [[ -z $asked ]] && ((status != 100)) || return "$status"
        ((${#starts[@]} > 1 || SECONDS - starts[0] > 60 || status < 1 || status > 2)) || return "$status"
        pause=$((${#starts[@]} < 2 ? 0 : ${#starts[@]} > 7 ? 60 : 1 << (${#starts[@]} - 2)))
        ((pause > 0)) || pause=0.5
        echo "$(basename "$0"): the daemon ended (status $status); starts again in $pause s, its workers train on" >&2
        sleep "$pause" &
        child=$!
        await "$child" || true
        child=''
        [[ -z $asked ]] || return 0
    done
}

# Whether the container ends with this script: it is pid 1, or without a terminal the only child of an init such as tini.
ends_the_container() {
    local parent
    [[ ! -d /run/systemd/system ]] || return 1
    (($$ != 1)) || return 0
    [[ ! -t 1 ]] || return 1
    parent=$(awk '$1 == "PPid:" { print $2 }' "/proc/$PPID/status" 2>/dev/null) || return 1
    ((PPID == 1)) || { [[ $parent == 1 ]] && [[ $(</proc/1/comm) =~ ^(tini|docker-init|catatonit|dumb-init)$ ]]; }
}
