#!/usr/bin/env bash
# Shared by install.sh and upgrade.sh: releases below a prefix, the link to the release in use, installed files.
#   PREFIX/releases/NAME   a program and its environment; complete once NAME/.complete exists
#   PREFIX/current         a link to the release in use; one rename replaces it. PREFIX/deploy: its commands for configurations
#   NAME/.came-from        the release that was in use before this one
#   NAME/.made-with        the interpreter, and the directories of borrowed third-party packages
#   PREFIX/upgrading       the old and the new release of an unfinished upgrade (upgrade.sh)

# shellcheck disable=SC2034  # scripts that source this file use some of these
name=$(basename "$0" .sh) dry_run=false prefix=/opt/extralife packages=() changed=false
readonly UNITS=(
    extralife.service extralife-gpu.service extralife.slice extralife-alert@.service extralife-upgrade.service
)
# shellcheck disable=SC2034
readonly CONFIG=/etc/extralife/extralife.toml STATE=/var/lib/extralife RUNTIME=/run/extralife ACCOUNT=extralife
readonly JUDGED=/run/extralife-upgrade.said LEFT_WORKERS=/run/extralife-upgrade.workers # upgrade.sh uses them while it runs
# Commands in /usr/local/bin. `extralife` and `extralifectl` exist because `supervisorctl` may be Supervisor's own.
readonly LINKS=(extralife extralifectl)
readonly SHELL_HELP=( # below /usr/local/share
    bash-completion/completions/extralifectl bash-completion/completions/supervisorctl
    zsh/site-functions/_extralifectl fish/vendor_completions.d/extralifectl.fish
)
# Every path that installations, upgrades and units create on this machine, besides the prefix and the account. uninstall.sh
# always removes the first list, and the second list with --delete-data. Add each new path here.
# shellcheck disable=SC2034
readonly MADE=(
    "${UNITS[@]/#//etc/systemd/system/}" /etc/sysusers.d/extralife.conf /etc/tmpfiles.d/extralife.conf
    "$RUNTIME" /run/extralife-last-words "$JUDGED" "$LEFT_WORKERS" /var/cache/extralife
    "${LINKS[@]/#//usr/local/bin/}" "${SHELL_HELP[@]/#//usr/local/share/}"
)
# shellcheck disable=SC2034
readonly MADE_AND_FILLED=("$STATE" "$(dirname "$CONFIG")" /etc/systemd/system/{extralife.service,extralife.slice}.d)

say() {
    printf '%s: %s\n' "$name" "$*" 2>/dev/null || true # a closed terminal must not end a running upgrade
}

die() {
    printf '%s: %s\n' "$name" "$*" >&2
    exit 1
}

# act WHAT COMMAND...: print the step, and run the command unless this is a dry run.
act() {
    say "$1"
    changed=true
    "$dry_run" || "${@:2}"
}

check_host() {
    ((EUID == 0)) || die "a system service needs root; without root use deploy/try"
    if [[ ! -d /run/systemd/system ]]; then
        die "this machine was not booted with systemd. Without it: deploy/bootstrap, then .venv/bin/supervisord" \
            "-c FILE, started at boot and again whenever it ends by your own means (docs/box.md); in a container" \
            "deploy/container/entrypoint does all that (docs/container.md)"
    fi
    local version
    version=$(systemctl --version | awk 'NR == 1 { print $2 }')
    ((version >= 250)) || die "systemd $version is too old: 250 or newer is needed (Debian 12 or 13, Ubuntu 24.04)"
}

check_prefix() {
    [[ $prefix == /?* && $prefix =~ ^[A-Za-z0-9/._-]+$ ]] || die "--prefix must be an absolute path of plain letters, not '$prefix'"
}

check_packages() {
    local each
    for each in "${packages[@]}"; do
        [[ -d $each ]] || die "--packages: $each is not a directory"
    done
}

# One installation at a time. A script that calls the other one passes the lock on with its descriptor.
lock() {
    ! "$dry_run" || return 0
    [[ -z ${EXTRALIFE_LOCK_HELD:-} ]] || return 0
    mkdir -p "$prefix"
    exec 8>"$prefix/.lock"
    flock -n 8 || die "another installation or upgrade is running below $prefix; wait until it ends"
    export EXTRALIFE_LOCK_HELD=yes
}

find_python() {
    local candidate path
    for candidate in ${PYTHON:-/usr/bin/python3 /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11 python3}; do
        if path=$(command -v "$candidate") && "$path" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s' "$path"
            return
        fi
    done
    candidate=${PYTHON:-python3} && candidate=${candidate%% *}
    die "Python 3.11 or newer is needed, and $candidate is $("$candidate" -V 2>/dev/null || echo "not there") (Debian 12 or 13, Ubuntu 24.04: apt-get install python3 python3-venv)"
}

# put SOURCE TARGET: copy the file if it differs, with the prefix in place of /opt/extralife.
put() {
    local wanted
    wanted=$(sed "s#/opt/extralife/#$prefix/#g" "$1")
    put_text "$2" "$wanted"
}

put_text() {
    [[ -f $1 && $(<"$1") == "$2" ]] || act "write $1" write_file "$1" "$2"
}

write_file() {
    mkdir -p "$(dirname "$1")"
    printf '%s\n' "$2" >"$1.new"
    sync "$1.new"
    mv "$1.new" "$1"
}

# put_units SOURCE: install the units of this checkout or release.
put_units() {
    local unit
    for unit in "${UNITS[@]}"; do
        [[ ! -e $1/units/$unit ]] || put "$1/units/$unit" "/etc/systemd/system/$unit"
    done
}

# --- releases ----------------------------------------------------------------------------------------------------------

# The files of a release, in a checkout or in a release.
sources() {
    find supervisor workers deploy units docs tests/requirements.lock tests/requirements-systemd.lock \
        pyproject.toml README.md CHANGELOG.md LICENSE -type f -not -name '*.pyc' -not -path '*.egg-info/*' | LC_ALL=C sort
}

project_version() {
    sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml
}

release_name() {
    printf '%s-%s' "$(project_version)" "$({
        sources | xargs -d '\n' sha256sum
        printf '%s\n' "$1" "${packages[@]}"
    } | sha256sum | cut -c 1-10)"
}

# Makes the program and its environment. It writes .complete last: without that file the release counts as incomplete.
make_release() {
    local release=$1 python=$2 old
    if [[ -e $release ]]; then # a process that still runs from it may write into it meanwhile
        old=$(mktemp -d "$release.XXXX")
        mv "$release" "$old"
        rm -rf "$old" || true
    fi
    mkdir -p "$release"
    sources | xargs -d '\n' cp --parents -t "$release"
    if ((${#packages[@]})); then
        borrow_packages "$release" "$python"
    else
        PYTHON=$python "$release/deploy/bootstrap"
    fi
    printf '%s\n' "$python" "${packages[@]}" >"$release/.made-with"
    "$release/.venv/bin/python" -m compileall -q "$release/supervisor" "$release/workers"
    sync -f "$release" # after a power cut .complete must not exist without the other files
    touch "$release/.complete"
    sync "$release/.complete" "$release"
}

borrow_packages() {
    local release=$1 site script
    "$2" -m venv --without-pip "$release/.venv"
    site=$("$release/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    printf '%s\n' "$release" "${packages[@]}" >"$site/extralife.pth"
    name_version "$site"
    for script in {supervisord,extralife}:supervisor.__main__ {supervisorctl,extralifectl}:supervisor.ctl.__main__; do
        printf '#!%s\nimport sys\nfrom %s import main\nsys.exit(main())\n' "$release/.venv/bin/python" "${script#*:}" \
            >"$release/.venv/bin/${script%%:*}"
        chmod 755 "$release/.venv/bin/${script%%:*}"
    done
}

# name_version SITE: write the version as package metadata. Otherwise Python would read the metadata of an older extralife in
# the borrowed packages.
name_version() {
    local version info
    version=$(project_version)
    info=$1/extralife-$version.dist-info
    mkdir "$info"
    printf 'Metadata-Version: 2.1\nName: extralife\nVersion: %s\n' "$version" >"$info/METADATA"
    printf 'extralife\n' >"$info/INSTALLER"
}

check_release() {
    runuser -u "$ACCOUNT" -- "$1/.venv/bin/python" -P -c 'import supervisor.shell.daemon' || die "the user $ACCOUNT cannot run" \
        "$1/.venv/bin/python; is its interpreter or one of its packages below a directory that is closed to others?"
}

# check_config RELEASE [FILE]: die if that release cannot use the file with the service's directories.
check_config() {
    local said file=${2:-$CONFIG}
    # systemd creates the directories at the first start. extralifectl finds them only through this file.
    said=$("$1/.venv/bin/python" -P -c '
import sys
from supervisor import config
try:
    paths = config.load(sys.argv[1], {}, look=False).settings.paths
except config.ConfigError as error:
    sys.exit("\n".join(error.errors))
for key, wanted in (("state_dir", sys.argv[2]), ("runtime_dir", sys.argv[3])):
    if getattr(paths, key) != wanted:
        sys.exit(f"[daemon] needs {key} = \"{wanted}\", where the service has it, not {getattr(paths, key)}")
' "$file" "$STATE" "$RUNTIME" 2>&1) || die "$file cannot be used, and nothing was started:"$'\n'"$said"
}

in_use() {
    readlink "$prefix/current" 2>/dev/null || true
}

# make_current RELEASE: one rename switches from the old release to the new one.
make_current() {
    ln -sfn "$1" "$prefix/current.new"
    sync "$prefix"
    mv -T "$prefix/current.new" "$prefix/current"
    ln -sfn current/deploy "$prefix/deploy" # a path for configurations, which holds after an upgrade
    sync "$prefix"
}
