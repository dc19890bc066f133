#!/usr/bin/env bash
# Upgrades an installed extralife in place; its workers train on. Run as root, from the newer checkout or with --from:
#   deploy/upgrade.sh [--from DIR|WHEEL] [--packages DIR]... [--dry-run] [--prefix DIR] [--ready-s N] [--healthy-s N]
#   deploy/upgrade.sh --rollback [--forget] [--dry-run] ...
#   --from DIR|WHEEL  a checkout, a release or a wheel of extralife (the checkout that this script lies in)
#   --to NAME         an existing release below PREFIX/releases
#   --packages DIR    third-party packages from this directory (as for install.sh); default: those of the release in use
#   --ready-s N       the new daemon must answer within N seconds (60)
#   --healthy-s N     and stay healthy for N seconds (30)
#   --rollback        go back to the previous release
#   --forget          if the previous release cannot read the newer facts, restore the journal copy from before the upgrade
#   --settle          finish or undo an interrupted upgrade; every run does this first, and so does the next boot
#   --dry-run         print each step and change nothing
# The script installs the new release beside the old one. One rename switches to it, and the daemon replaces itself. If the new
# daemon does not start, does not answer, is restarted or has lost a worker, the script switches back in the same way.
# Exit status: 0 upgraded, 1 refused and nothing changed, 3 back at the old release, 4 the old release is not healthy either.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 022

# Why beside the old release: installed over it, neither version is complete for minutes, and workers that import lazily get modules
# of the other one. Why deploy/health.py imports neither version: a broken version would check itself.

# shellcheck source=deploy/release.sh
source deploy/release.sh
readonly HOME_DIR=$PWD SOCKET=$RUNTIME/supervisor.sock JOURNAL=$STATE/journal.sqlite
readonly WENT_BACK=3 NOT_WELL=4
from=$PWD given_from=false mode=upgrade forget=false ready_s=60 healthy_s=30 judging='' staging='' target=''

usage() {
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$HOME_DIR/deploy/upgrade.sh"
}

parse() {
    while (($#)); do
        case $1 in
            --dry-run) dry_run=true ;;
            --rollback) mode=rollback ;;
            --settle) mode=settle ;;
            --forget) forget=true ;;
            --from | --to | --packages | --prefix | --ready-s | --healthy-s)
                (($# >= 2)) || die "$1 needs a value"
                case $1 in
                    --from) from=$(realpath -e -- "$2" 2>/dev/null) || die "--from: there is no $2" ;;
                    --to) target=$2 ;;
                    --packages) packages+=("$(realpath -- "$2")") ;;
                    --prefix) prefix=${2%/} ;;
                    --ready-s) ready_s=$2 ;;
                    --healthy-s) healthy_s=$2 ;;
                esac
                [[ $1 != --from ]] || given_from=true
                shift
                ;;
            -h | --help) usage && exit 0 ;;
            *) die "$1 is not an option; deploy/upgrade.sh --help lists them" ;;
        esac
        shift
    done
    check_prefix
    check_packages
    local each
    for each in "$ready_s" "$healthy_s"; do
        [[ $each =~ ^[0-9]+$ ]] || die "--ready-s and --healthy-s are whole seconds, not '$each'"
    done
    [[ $mode == upgrade && -z $target ]] || ! "$given_from" || die "--from, --to, --rollback and --settle exclude each other"
    [[ $mode == upgrade || -z $target ]] || die "--from, --to, --rollback and --settle exclude each other"
    [[ $mode == rollback ]] || ! "$forget" || die "--forget belongs to --rollback"
    [[ -n $(in_use) ]] || die "there is no installation below $prefix to upgrade: deploy/install.sh makes one, --prefix names another"
}

# --- the daemon and its verdict ------------------------------------------------------------------------------------------

health() {
    "$(find_python)" -I "$HOME_DIR/deploy/health.py" "$@"
}

as_account() {
    runuser -u "$ACCOUNT" -- "$@"
}

is_active() {
    [[ $(systemctl show --property ActiveState --value extralife.service) =~ ^(active|activating|reloading|deactivating)$ ]]
}

# At boot this script may run before the service starts.
is_active_soon() {
    local until_s=$((SECONDS + ready_s))
    while [[ $mode == settle ]] && ! is_active && ((SECONDS < until_s)); do
        sleep 0.5
    done
    is_active
}

# judge RELEASE BEFORE: exit status 0 if the daemon is healthy; otherwise `verdict` has the reason. A signal may interrupt it.
judge() {
    local said=$JUDGED # not on a disk, which may be full
    health judge "$SOCKET" "$2" "$1" "$ready_s" "$healthy_s" >"$said" 2>&1 8>&- &
    judging=$!
    local well=true
    wait "$judging" || well=false
    judging=''
    verdict=$(tail -n 1 "$said" 2>/dev/null || true)
    rm -f "$said"
    "$well"
}

# The workers train on: systemd kills only the daemon, and starts it again at once.
replace_by_force() {
    rm -f "$RUNTIME/starts" # this release must not wait because of the other release's failed starts
    if is_active; then
        systemctl kill --kill-whom=main --signal=KILL extralife.service 2>/dev/null || true
    else
        systemctl start --no-block extralife.service
    fi
}

# use RELEASE: every later start runs that release.
use() {
    make_current "$1"
    put_units "$1"
    sync
    systemctl daemon-reload
    [[ ! -e /etc/systemd/system/extralife-upgrade.service ]] || systemctl enable --quiet extralife-upgrade.service
}

# --- the record of an unfinished upgrade, on disk until its verdict --------------------------------------------------------

begin() {
    local aside=$prefix/upgrading.new
    rm -rf "$aside"
    mkdir "$aside"
    printf '%s\n' "$1" >"$aside/from"
    printf '%s\n' "$2" >"$aside/to"
    cat /proc/sys/kernel/random/boot_id >"$aside/boot"
    cp "$3" "$aside/before"
    sync "$aside"/* "$aside"
    mv -T "$aside" "$prefix/upgrading"
    sync "$prefix"
}

finish() {
    mv -T "$prefix/upgrading" "$prefix/upgrading.new" # one rename ends the upgrade; deleting the files is not atomic
    sync "$prefix"
    rm -rf "$prefix/upgrading.new"
}

# Finish or undo an earlier run that ended between the switch and the verdict, by a kill or a power cut.
settle() {
    [[ -d $prefix/upgrading ]] || return 0
    local old new now
    old=$(<"$prefix/upgrading/from") new=$(<"$prefix/upgrading/to") now=$(in_use)
    if "$dry_run"; then
        say "an upgrade from $old to $new was interrupted: it would be checked first"
        return 0
    fi
    if [[ $now == "$new" ]]; then
        say "the upgrade to $new was interrupted: checking it now"
        # After a reboot the workers are different processes, so a comparison makes no sense.
        [[ $(<"$prefix/upgrading/boot") == "$(</proc/sys/kernel/random/boot_id)" ]] || : >"$prefix/upgrading/before"
        if ! is_active_soon; then
            say "the service does not run, so the upgrade cannot be checked"
        elif [[ -s $prefix/upgrading/before ]] && health same "$SOCKET" "$prefix/upgrading/before"; then
            change_image # the link was already switched, but the daemon had not yet been asked to reload
            judge "$new" "$prefix/upgrading/before" || go_back "$old" "$new" "$verdict"
        else
            judge "$new" "$prefix/upgrading/before" || go_back "$old" "$new" "$verdict"
        fi
        finish
        say "$new is in use and healthy"
    elif [[ $now == "$old" ]]; then
        put_units "$old"
        systemctl daemon-reload
        if [[ $(<"$prefix/upgrading/boot") == "$(</proc/sys/kernel/random/boot_id)" ]] && is_active; then
            health same "$SOCKET" "$prefix/upgrading/before" || go_back "$old" "$new" "the way back from it was cut short"
        fi
        finish
        say "an earlier upgrade was interrupted before the switch: $old is still in use"
    else
        finish
    fi
}

# --- releases --------------------------------------------------------------------------------------------------------------

# The new release uses the interpreter and packages of the release in use, unless options name others.
adopt_settings() {
    local site file current kept=()
    current=$(in_use)
    [[ ! -e $current/.made-with ]] || mapfile -t kept <"$current/.made-with"
    [[ -n ${PYTHON:-} || ! -x ${kept[0]:-} ]] || PYTHON=${kept[0]}
    if [[ -z ${PYTHON:-} ]]; then
        PYTHON=$(sed -n 's/^executable = //p' "$current/.venv/pyvenv.cfg")
        [[ -x $PYTHON ]] || PYTHON=''
    fi
    ((${#packages[@]} == 0)) || return 0
    packages=("${kept[@]:1}")
    ((${#kept[@]} == 0)) || return 0
    for site in "$current"/.venv/lib/python3*/site-packages; do
        file=$site/extralife.pth
        [[ ! -e $file ]] || mapfile -t packages < <(tail -n +2 "$file")
    done
    check_packages
}

# Unpack a wheel into the layout of a checkout.
unpack() {
    staging=$(mktemp -d)
    "$(find_python)" -I - "$1" "$staging" <<'PYTHON' || die "$1 is not a wheel of extralife"
import sys, zipfile
from pathlib import Path

wheel, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    for info in archive.infolist():
        parts = Path(info.filename).parts
        if info.is_dir() or ".." in parts or parts[0] not in ("supervisor", "workers") and "extralife" not in parts[:4]:
            continue
        if parts[0] not in ("supervisor", "workers"):  # extralife-0.1.0.data/data/share/extralife/...
            parts = parts[4:]
        path = Path(target, *parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(archive.read(info))
        path.chmod(0o755 if info.external_attr >> 16 & 0o111 else 0o644)
PYTHON
    from=$staging
}

made_from() {
    local python=$1
    [[ -d $from ]] || unpack "$from"
    cd "$from"
    if [[ ! -x deploy/bootstrap || ! -d supervisor || ! -d workers ]] || ! grep -qs '^name = "extralife"' pyproject.toml; then
        die "--from: $from is not a checkout, a release or a wheel of extralife"
    fi
    target=$prefix/releases/$(release_name "$python")
    [[ -e $target/.complete ]] || act "make $target" make_release "$target" "$python"
    cd "$HOME_DIR"
}

# True if a process still runs from a release. A process that was started through the link may use any release.
is_used() {
    local main
    main=$(systemctl show --property MainPID --value extralife.service)
    # The pattern comes from a file: as an argument, grep would find it in its own command line. The output counts, not the
    # exit status: grep reports an error whenever a process ends meanwhile.
    [[ -z $(grep -lsaF -f <(printf '%s/\n' "$1") /proc/[0-9]*/cmdline /proc/[0-9]*/maps || true) ]] || return 0
    [[ -n $(grep -lsaF -f <(printf '%s/current/.venv/\n' "$prefix") /proc/[0-9]*/cmdline | grep -v "^/proc/$main/" || true) ]]
}

# Remove old releases, except the release in use, the previous one, and those that a process still runs from.
prune() {
    local release kept
    kept=$(cat "$(in_use)/.came-from" 2>/dev/null || true)
    for release in "$prefix"/releases/*; do
        [[ $release != "$(in_use)" && $release != "$kept" && -d $release ]] || continue
        if is_used "$release"; then
            say "keeping $release for now: workers still run from it"
        else
            act "remove $release" rm -rf -- "$release"
            rm -f -- "$JOURNAL.of-$(basename "$release")"
        fi
    done
}

can_read_journal() {
    as_account "$1/.venv/bin/python" -P -c '
import sys
from supervisor.adapters.journal.sqlite import JournalReader
with JournalReader(sys.argv[1]) as reader:
    for _ in reader.read():
        pass' "$JOURNAL" >/dev/null 2>&1
}

# --- changing over -----------------------------------------------------------------------------------------------------------

change_image() {
    systemctl reload --no-block extralife.service || replace_by_force
}

# go_back OLD NEW WHY: ends the script.
go_back() {
    trap '' INT TERM HUP
    local old=$1 new=$2 why=$3 before=$prefix/upgrading/before workers=$LEFT_WORKERS
    local healthy_s=$((healthy_s < 10 ? healthy_s : 10)) # the previous release has already proved that it works
    say "$new is not healthy: $why"
    say "going back to $old"
    use "$old"
    if ! health same "$SOCKET" "$before"; then
        if ! can_read_journal "$old"; then
            say "restoring the journal of that time: $(basename "$old") cannot read the newer facts"
            as_account "$(find_python)" -I - put-back "$JOURNAL" "$JOURNAL.of-$(basename "$old")" <"$HOME_DIR/deploy/health.py" || true
        fi
        replace_by_force
        # A report without a start time of the daemon means that its image may differ.
        blank "$before" "$workers" || : >"$workers"
        if ! judge "$old" "$workers"; then
            printf '%s: went back to %s, which is not healthy either: %s\n' "$name" "$old" "$verdict" >&2
            exit "$NOT_WELL"
        fi
    fi
    rm -f "$workers"
    finish
    printf '%s: %s was not healthy (%s); %s is in use again, and its workers were not touched\n' "$name" "$new" "$why" "$old" >&2
    exit "$WENT_BACK"
}

# blank BEFORE TARGET: copy the report, with the workers but without the daemon's start time.
blank() {
    "$(find_python)" -I - "$1" "$2" <<'PYTHON'
import json, sys
from pathlib import Path

account = json.loads(Path(sys.argv[1]).read_text() or "{}")
if account:
    account["daemon"]["started_wall_s"] = 0
Path(sys.argv[2]).write_text(json.dumps(account))
PYTHON
}

interrupted() {
    [[ -z $judging ]] || kill "$judging" 2>/dev/null || true
    go_back "$1" "$2" "somebody interrupted the upgrade"
}

change_over() {
    local old=$1 new=$2 before
    if "$dry_run"; then
        say "would switch from $old to $new, reload the daemon, watch it for $healthy_s s, and go back if it is not healthy"
        return 0
    fi
    check_release "$new"
    check_config "$new"
    printf '%s\n' "$old" >"$new/.came-from"
    sync "$new/.came-from" "$new"
    if ! is_active; then
        use "$new"
        say "$new is in use; the service does not run, so nothing was started or checked"
        return 0
    fi
    before=$(mktemp)
    health look "$SOCKET" >"$before" || say "the daemon in use does not answer: it is replaced nevertheless, and workers cannot be compared"
    keep_journal "$old"
    begin "$old" "$new" "$before"
    # shellcheck disable=SC2064  # expand the variables now
    trap "interrupted '$old' '$new'" INT TERM HUP
    say "switch to $new"
    use "$new"
    [[ $mode != rollback ]] || ! "$forget" || can_read_journal "$new" || put_back_of "$new"
    say "reload the daemon (it replaces itself; workers are not touched)"
    if [[ -s $before ]] && ! "$forget"; then change_image; else replace_by_force; fi
    rm -f "$before"
    judge "$new" "$prefix/upgrading/before" || go_back "$old" "$new" "$verdict"
    trap '' INT TERM HUP
    finish
    say "$new is in use: it answers, and every worker trains on"
}

keep_journal() {
    [[ ! -e $JOURNAL ]] || as_account "$(find_python)" -I - keep-journal "$JOURNAL" "$JOURNAL.of-$(basename "$1")" \
        <"$HOME_DIR/deploy/health.py" || die "the journal could not be copied; without a copy there might be no way back"
}

put_back_of() {
    as_account "$(find_python)" -I - put-back "$JOURNAL" "$JOURNAL.of-$(basename "$1")" <"$HOME_DIR/deploy/health.py" ||
        go_back "$(<"$prefix/upgrading/from")" "$1" "there is no journal that it could read"
}

check_way_back() {
    local back=$1
    [[ -n $back ]] || die "no record of the release before $(in_use); name one: deploy/upgrade.sh --to NAME, with" \
        "any of: $(cd "$prefix/releases" && echo *)"
    [[ -e $back/.complete ]] || die "the previous release $back does not exist any more"
    "$forget" || can_read_journal "$back" || die "$(basename "$back") cannot read the newer facts in the journal." \
        "With --forget it goes on with the journal as it left it; the newer one stays beside it as journal.sqlite.newer"
}

main() {
    parse "$@"
    check_host
    lock
    trap '[[ -z $staging ]] || rm -rf "$staging"' EXIT
    settle
    [[ $mode != settle ]] || return 0
    local old python
    old=$(in_use)
    if [[ $mode == rollback ]]; then
        target=$(cat "$old/.came-from" 2>/dev/null || true)
        check_way_back "$target"
    elif [[ -n $target ]]; then
        target=$prefix/releases/$(basename "$target")
        [[ -e $target/.complete ]] || die "--to: there is no complete release $target"
    else
        adopt_settings
        python=$(find_python)
        made_from "$python"
    fi
    if [[ $target == "$old" ]]; then
        say "$old is in use already"
        return 0
    fi
    change_over "$old" "$target"
    "$dry_run" || prune
}

main "$@"
