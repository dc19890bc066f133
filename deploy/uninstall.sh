#!/usr/bin/env bash
# Takes the service away again: deploy/uninstall.sh [--dry-run] [--prefix DIR] [--delete-data]
# Every worker saves and leaves first. What was trained stays in /var/lib/extralife, settings in /etc/extralife, unless
# --delete-data says otherwise.
set -euo pipefail

readonly UNITS=(
    extralife.service extralife-gpu.service extralife.slice extralife-alert@.service extralife-upgrade.service
)
dry_run=false prefix=/opt/extralife delete_data=false

die() {
    printf 'uninstall: %s\n' "$*" >&2
    exit 1
}

act() {
    printf 'uninstall: %s\n' "$1"
    "$dry_run" || "${@:2}"
}

remove() {
    [[ ! -e $1 && ! -L $1 ]] || act "remove $1" rm -rf -- "$1"
}

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

if [[ -e /etc/systemd/system/extralife.service ]]; then
    act "stop the service: every worker saves and leaves" systemctl disable --quiet --now extralife.service
fi
if [[ -e /etc/systemd/system/extralife-upgrade.service ]]; then
    "$dry_run" || systemctl disable --quiet extralife-upgrade.service
fi
for unit in "${UNITS[@]}"; do
    remove "/etc/systemd/system/$unit"
done
remove /etc/sysusers.d/extralife.conf
remove /etc/tmpfiles.d/extralife.conf
"$dry_run" || systemctl daemon-reload
remove "$prefix"
remove /run/extralife
if "$delete_data"; then
    remove /var/lib/extralife
    remove /var/cache/extralife
    remove /etc/extralife
    ! getent passwd extralife >/dev/null || act "remove the user extralife" userdel extralife
else
    echo "uninstall: kept: /var/lib/extralife, /etc/extralife, the user extralife"
fi
