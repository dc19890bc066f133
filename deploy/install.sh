#!/usr/bin/env bash
# Installs extralife as a systemd service, or brings an installation up to date. Run as root from a checkout:
#   deploy/install.sh [--dry-run] [--prefix DIR] [--config FILE] [--packages DIR]... [--no-start]
#   --dry-run       say what would be done, and do nothing
#   --prefix DIR    where the program goes (/opt/extralife); state is /var/lib/extralife, settings /etc/extralife
#   --config FILE   the configuration of a first installation (default: deploy/examples/box.toml, ten games that climb)
#   --packages DIR  take third-party packages from this directory (a site-packages) and install none; may be repeated
#   --no-start      neither enable nor start the service
# Without a network: --packages, or a directory of wheels with PIP_NO_INDEX=1 PIP_FIND_LINKS=DIR. PYTHON=/path/to/python3
# chooses the interpreter. Again and again is fine: only what differs is done. A running service changes over to the new
# version in place, its workers train on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 022

# shellcheck source=deploy/release.sh
source deploy/release.sh
start=true first_config='' upgraded=false
readonly DEFAULT_CONFIG=deploy/examples/box.toml

usage() {
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
}

parse() {
    while (($#)); do
        case $1 in
            --dry-run) dry_run=true ;;
            --no-start) start=false ;;
            --prefix | --config | --packages)
                (($# >= 2)) || die "$1 needs a value"
                case $1 in
                    --prefix) prefix=${2%/} ;;
                    --config) first_config=$2 ;;
                    --packages) packages+=("$2") ;;
                esac
                shift
                ;;
            -h | --help) usage && exit 0 ;;
            *) die "$1 is not an option; deploy/install.sh --help lists them" ;;
        esac
        shift
    done
    check_prefix
    check_packages
    [[ -z $first_config || -r $first_config ]] || die "--config: $first_config cannot be read"
}

# Borrowed packages are complete as they are; without apt-get deploy/bootstrap says what it lacks.
install_debian_packages() {
    ((${#packages[@]} == 0)) && command -v apt-get >/dev/null || return 0
    if "$dry_run"; then
        PYTHON=$1 deploy/system-packages service --dry-run
    else
        PYTHON=$1 deploy/system-packages service || die "nothing was installed; the lines above say what is missing"
    fi
}

make_account() {
    put units/extralife.sysusers /etc/sysusers.d/extralife.conf
    getent passwd "$ACCOUNT" >/dev/null || act "make the user $ACCOUNT" systemd-sysusers /etc/sysusers.d/extralife.conf
    put units/extralife.tmpfiles /etc/tmpfiles.d/extralife.conf
    [[ -d /etc/extralife && -d $STATE ]] || act "make /etc/extralife and $STATE" systemd-tmpfiles --create /etc/tmpfiles.d/extralife.conf
}

write_config() {
    if [[ -e $CONFIG ]]; then
        [[ -z $first_config ]] || cmp -s "$first_config" "$CONFIG" ||
            say "$CONFIG exists and stays as it is: --config is for the first installation alone. To take it over:" \
                "install -m 644 $first_config $CONFIG && $prefix/current/.venv/bin/supervisorctl -c $CONFIG update"
    elif [[ -n $first_config ]]; then
        # Checked before it is in place: a refused one would count as the configuration from then on.
        "$dry_run" || check_config "$1" "$first_config"
        act "write $CONFIG, from $first_config" write_file "$CONFIG" "$(<"$first_config")"
    else
        act "write $CONFIG, ten games at the load that the box bears" write_file "$CONFIG" "$(<"$DEFAULT_CONFIG")"
    fi
}

# switch RELEASE: one that runs changes over under the eyes of upgrade.sh, which also knows the way back.
switch() {
    if "$start" && [[ -n $(in_use) ]] && systemctl is-active --quiet extralife.service; then
        upgraded=true
        act "upgrade from $(in_use)" deploy/upgrade.sh --prefix "$prefix" --to "$(basename "$1")"
    else
        act "make it the current one" make_current "$1"
    fi
}

run_service() {
    "$start" || return 0
    local unit
    for unit in extralife.service extralife-upgrade.service; do
        systemctl is-enabled --quiet "$unit" 2>/dev/null || act "enable $unit" systemctl enable --quiet "$unit"
    done
    if ! systemctl is-active --quiet extralife.service; then
        act "start extralife.service" systemctl start extralife.service
    elif "$changed" && ! "$upgraded"; then
        act "have the running daemon replace itself, workers untouched" systemctl reload extralife.service
    fi
}

main() {
    parse "$@"
    check_host
    local python release
    lock
    python=$(find_python)
    install_debian_packages "$python"
    make_account
    release=$prefix/releases/$(release_name "$python")
    [[ -e $release/.complete ]] || act "make $release" make_release "$release" "$python"
    "$dry_run" || check_release "$release"
    write_config "$release"
    "$dry_run" || check_config "$release"
    [[ $(in_use) == "$release" ]] || switch "$release"
    put_units .
    ! "$changed" || act "have systemd read its units" systemctl daemon-reload
    # A unit of which a power cut leaves no byte is a masked one: the box would come back and train nothing, for good.
    "$dry_run" || ! "$changed" || sync
    run_service
    if "$dry_run"; then
        "$changed" || echo "install: nothing to do"
        exit 0
    fi
    ! "$changed" || sync # that it is enabled
    "$changed" || echo "install: everything was in place"
    echo
    "$prefix/current/.venv/bin/supervisorctl" -c "$CONFIG" doctor || echo "install: see to what is bad above"
    cat <<END

  how it is     $prefix/current/.venv/bin/supervisorctl -c $CONFIG status
  settings      $CONFIG, then the same with update
  its journal   journalctl -u extralife
  take it away  deploy/uninstall.sh
END
}

main "$@"
