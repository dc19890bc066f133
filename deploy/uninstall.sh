#!/usr/bin/env bash
# Removes the service: deploy/uninstall.sh [--dry-run] [--prefix DIR] [--delete-data]
# Every worker saves and ends first. Without --delete-data, this script keeps trained data in /var/lib/extralife, settings in
# /etc/extralife and the unit's drop-ins. release.sh lists all paths to remove.
set -euo pipefail

# shellcheck source=deploy/release.sh
source "$(dirname "${BASH_SOURCE[0]}")/release.sh"
delete_data=false

remove() {
    local each
    for each in "$@"; do
        [[ ! -e $each && ! -L $each ]] || act "remove $each" rm -rf -- "$each"
    done
}

parse() {
    while (($#)); do
        case $1 in
            --dry-run) dry_run=true ;;
            --delete-data) delete_data=true ;;
            --prefix)
                (($# >= 2)) || die "--prefix needs a value"
                prefix=${2%/}
                shift
                ;;
            *) die "$1 is not an option: there are --dry-run, --prefix DIR and --delete-data" ;;
        esac
        shift
    done
    ((EUID == 0)) || die "this needs root"
    [[ $prefix == /?* ]] || die "--prefix must be an absolute path, not '$prefix'"
    [[ -d $prefix/releases || ! -e $prefix ]] || die "$prefix is not an installation: it has no releases directory"
}

# bash reads the whole function before it runs: this script may lie below the prefix that it removes.
main() {
    parse "$@"
    if [[ -e /etc/systemd/system/extralife.service ]]; then
        act "stop the service: every worker saves and leaves" systemctl disable --quiet --now extralife.service
    fi
    if [[ -e /etc/systemd/system/extralife-upgrade.service ]]; then
        "$dry_run" || systemctl disable --quiet extralife-upgrade.service
    fi
    remove "${MADE[@]}"
    "$dry_run" || systemctl daemon-reload
    remove "$prefix"
    if "$delete_data"; then
        remove "${MADE_AND_FILLED[@]}"
        ! getent passwd "$ACCOUNT" >/dev/null || act "remove the user $ACCOUNT" userdel "$ACCOUNT"
    else
        echo "uninstall: kept: $STATE, $(dirname "$CONFIG"), the user $ACCOUNT"
    fi
}

main "$@"
exit
