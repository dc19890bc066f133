#!/usr/bin/env bash
# Installs extralife as a systemd service, or brings an installation up to date. Run as root from a checkout:
#   deploy/install.sh [--dry-run] [--prefix DIR] [--config FILE] [--packages DIR]... [--no-start]
#   --dry-run       say what would be done, and do nothing
#   --prefix DIR    where the program goes (/opt/extralife); state is /var/lib/extralife, settings /etc/extralife
#   --config FILE   the configuration to begin with, if there is none yet (else two games at a light load)
#   --packages DIR  take third-party packages from this directory (a site-packages) and install none; may be repeated
#   --no-start      neither enable nor start the service
# Without a network: --packages, or a directory of wheels with PIP_NO_INDEX=1 PIP_FIND_LINKS=DIR. PYTHON=/path/to/python3
# chooses the interpreter. Again and again is fine: only what differs is done. A running service changes over to the new
# version in place, its workers train on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 022

readonly UNITS=(extralife.service extralife-gpu.service extralife.slice extralife-alert@.service)
readonly CONFIG=/etc/extralife/extralife.toml STATE=/var/lib/extralife RUNTIME=/run/extralife ACCOUNT=extralife
dry_run=false start=true prefix=/opt/extralife first_config='' packages=() changed=false

die() {
    printf 'install: %s\n' "$*" >&2
    exit 1
}

# act WHAT COMMAND...: say it, and do it unless this is a dry run.
act() {
    printf 'install: %s\n' "$1"
    changed=true
    "$dry_run" || "${@:2}"
}

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
    [[ $prefix == /?* && $prefix =~ ^[A-Za-z0-9/._-]+$ ]] || die "--prefix must be an absolute path of plain letters, not '$prefix'"
    [[ -z $first_config || -r $first_config ]] || die "--config: $first_config cannot be read"
    local each
    for each in "${packages[@]}"; do
        [[ -d $each ]] || die "--packages: $each is not a directory"
    done
}

check_host() {
    ((EUID == 0)) || die "this installs a system service and needs root; without root there is deploy/try"
    if [[ ! -d /run/systemd/system ]]; then
        die "this machine was not booted with systemd. Without it: deploy/bootstrap, then .venv/bin/supervisord" \
            "-c FILE, started by whatever starts things here, and again when it ends (docs/box.md)"
    fi
    local version
    version=$(systemctl --version | awk 'NR == 1 { print $2 }')
    ((version >= 250)) || die "systemd $version is too old: 250 or newer is needed (Debian 12, Ubuntu 24.04)"
}

find_python() {
    local candidate path
    for candidate in ${PYTHON:-/usr/bin/python3 /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11 python3}; do
        if path=$(command -v "$candidate") && "$path" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s' "$path"
            return
        fi
    done
    die "Python 3.11 or newer is needed, and there is none (Debian 12, Ubuntu 24.04: apt-get install python3 python3-venv)"
}

install_debian_packages() {
    local missing=() python=$1
    ((${#packages[@]} == 0)) && command -v apt-get >/dev/null || return 0
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    command -v gcc >/dev/null || missing+=(gcc libc6-dev)
    command -v pkg-config >/dev/null || missing+=(pkg-config)
    pkg-config --exists libsystemd 2>/dev/null || missing+=(libsystemd-dev)
    "$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
        missing+=(python3-dev)
    ((${#missing[@]})) || return 0
    act "install with apt-get: ${missing[*]}" \
        env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# put SOURCE TARGET: copied where it differs, with the prefix in place of /opt/extralife.
put() {
    local wanted
    wanted=$(sed "s#/opt/extralife/#$prefix/#g" "$1")
    [[ -f $2 && $(<"$2") == "$wanted" ]] || act "write $2" write_file "$2" "$wanted"
}

write_file() {
    mkdir -p "$(dirname "$1")"
    printf '%s\n' "$2" >"$1.new"
    mv "$1.new" "$1"
}

make_account() {
    put units/extralife.sysusers /etc/sysusers.d/extralife.conf
    getent passwd "$ACCOUNT" >/dev/null || act "make the user $ACCOUNT" systemd-sysusers /etc/sysusers.d/extralife.conf
    put units/extralife.tmpfiles /etc/tmpfiles.d/extralife.conf
    [[ -d /etc/extralife ]] || act "make /etc/extralife" systemd-tmpfiles --create /etc/tmpfiles.d/extralife.conf
}

sources() {
    find supervisor workers deploy units docs tests/requirements.lock tests/requirements-systemd.lock \
        pyproject.toml README.md CHANGELOG.md LICENSE -type f -not -name '*.pyc' -not -path '*.egg-info/*' | LC_ALL=C sort
}

release_name() {
    local version
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
    printf '%s-%s' "$version" "$({
        sources | xargs -d '\n' sha256sum
        printf '%s\n' "$1" "${packages[@]}"
    } | sha256sum | cut -c 1-10)"
}

# The program and its environment, complete or not there at all: the stamp is what makes it count.
make_release() {
    local release=$1 python=$2
    rm -rf "$release"
    mkdir -p "$release"
    sources | xargs -d '\n' cp --parents -t "$release"
    if ((${#packages[@]})); then
        borrow_packages "$release" "$python"
    else
        PYTHON=$python "$release/deploy/bootstrap"
    fi
    "$release/.venv/bin/python" -m compileall -q "$release/supervisor" "$release/workers"
    sync -f "$release" # the stamp must not outlive a power cut that what it stamps does not
    touch "$release/.complete"
}

borrow_packages() {
    local release=$1 site name
    "$2" -m venv --without-pip "$release/.venv"
    site=$("$release/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    printf '%s\n' "$release" "${packages[@]}" >"$site/extralife.pth"
    for name in supervisord:supervisor.__main__ supervisorctl:supervisor.ctl.__main__; do
        printf '#!%s\nimport sys\nfrom %s import main\nsys.exit(main())\n' "$release/.venv/bin/python" "${name#*:}" \
            >"$release/.venv/bin/${name%%:*}"
        chmod 755 "$release/.venv/bin/${name%%:*}"
    done
}

check_release() {
    runuser -u "$ACCOUNT" -- "$1/.venv/bin/python" -P -c 'import supervisor.shell.daemon' || die "the user $ACCOUNT cannot run" \
        "$1/.venv/bin/python; is its interpreter or one of its packages below a directory that is closed to others?"
}

make_current() {
    ln -sfn "$1" "$prefix/current.new"
    mv -T "$prefix/current.new" "$prefix/current"
}

write_config() {
    [[ ! -e $CONFIG ]] || return 0
    if [[ -n $first_config ]]; then
        act "write $CONFIG, from $first_config" install -D -m 644 "$first_config" "$CONFIG"
    else
        act "write $CONFIG, two games at a light load" write_default
    fi
}

write_default() {
    local where
    where=$(printf '[daemon]\nstate_dir = "%s"\nruntime_dir = "%s"\n\n' "$STATE" "$RUNTIME")
    write_file "$CONFIG" "$where"$'\n\n'"$("$prefix/current/.venv/bin/python" -P -m supervisor --print-default)"
}

check_config() {
    local said
    # The directories themselves are made by systemd at the first start. Whoever asks the daemon finds them only here.
    said=$("$prefix/current/.venv/bin/python" -P -c '
import sys
from supervisor import config
try:
    paths = config.load(sys.argv[1], {}, look=False).settings.paths
except config.ConfigError as error:
    sys.exit("\n".join(error.errors))
for key, wanted in (("state_dir", sys.argv[2]), ("runtime_dir", sys.argv[3])):
    if getattr(paths, key) != wanted:
        sys.exit(f"[daemon] needs {key} = \"{wanted}\", where the service has it, not {getattr(paths, key)}")
' "$CONFIG" "$STATE" "$RUNTIME" 2>&1) || die "$CONFIG cannot be used, and nothing was started:"$'\n'"$said"
}

run_service() {
    "$start" || return 0
    systemctl is-enabled --quiet extralife.service 2>/dev/null ||
        act "enable extralife.service" systemctl enable --quiet extralife.service
    if ! systemctl is-active --quiet extralife.service; then
        act "start extralife.service" systemctl start extralife.service
    elif "$changed"; then
        act "have the running daemon replace itself, workers untouched" systemctl reload extralife.service
    fi
}

main() {
    parse "$@"
    check_host
    local python release unit
    python=$(find_python)
    install_debian_packages "$python"
    make_account
    release=$prefix/releases/$(release_name "$python")
    [[ -e $release/.complete ]] || act "make $release" make_release "$release" "$python"
    "$dry_run" || check_release "$release"
    [[ $(readlink "$prefix/current" 2>/dev/null) == "$release" ]] || act "make it the current one" make_current "$release"
    write_config
    "$dry_run" || check_config
    for unit in "${UNITS[@]}"; do
        put "units/$unit" "/etc/systemd/system/$unit"
    done
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
