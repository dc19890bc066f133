#!/usr/bin/env bash
# Installs extralife as a systemd service, or updates an installation. Run as root from a checkout:
#   deploy/install.sh [--dry-run] [--prefix DIR] [--config FILE] [--packages DIR]... [--no-start]
#   --dry-run       print each step and change nothing
#   --prefix DIR    where the program goes (/opt/extralife); state is /var/lib/extralife, settings /etc/extralife
#   --config FILE   the configuration of a first installation (default: deploy/examples/box.toml, ten games that climb)
#   --packages DIR  take third-party packages from this directory (a site-packages) and install none; may be repeated
#   --no-start      neither enable nor start the service
#   --from-offsite REPO --password-file FILE [--env-file FILE] [--yes]
#                   continue the trainings of a lost box from its newest copy (docs/offsite.md); --yes: do not ask, even if this
#                   box has fewer cores, less memory or fewer GPUs
#   --ssh-key FILE --known-hosts FILE   for an sftp: repository: the service's private key and the server's host keys;
#                   install.sh copies both into /etc/extralife
# With EXTRALIFE_OFFSITE_REPOSITORY and EXTRALIFE_OFFSITE_PASSWORD_FILE (_ENV_FILE) in the environment of a first installation,
# as in user data: it waits while another box trains (EXTRALIFE_NEXT_BOX), then continues, or begins if nothing is copied yet.
# Without a network: --packages, or a directory of wheels with PIP_NO_INDEX=1 PIP_FIND_LINKS=DIR. PYTHON=/path/to/python3
# chooses the interpreter. Repeated runs do only the missing steps. A running service switches to the new version in place;
# its workers train on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 022

# Why no .deb: torch with CUDA makes it gigabytes, dpkg knows one version at a time and calls it installed before any check, and a
# postinst that needs the network blocks dpkg for every other package when a mirror does not answer.

# shellcheck source=deploy/release.sh
source deploy/release.sh
start=true first_config='' upgraded=false repository='' password_file='' env_file='' yes=()
ssh_key='' known_hosts='' of_template=false
readonly DEFAULT_CONFIG=deploy/examples/box.toml

usage() {
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
}

parse() {
    while (($#)); do
        case $1 in
            --dry-run) dry_run=true ;;
            --no-start) start=false ;;
            --yes) yes=(--yes) ;;
            --prefix | --config | --packages | --from-offsite | --password-file | --env-file | --ssh-key | --known-hosts)
                (($# >= 2)) || die "$1 needs a value"
                case $1 in
                    --prefix) prefix=${2%/} ;;
                    --config) first_config=$2 ;;
                    --packages) packages+=("$2") ;;
                    --from-offsite) repository=$2 ;;
                    --password-file) password_file=$2 ;;
                    --env-file) env_file=$2 ;;
                    --ssh-key) ssh_key=$2 ;;
                    --known-hosts) known_hosts=$2 ;;
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
    if [[ -z $repository && -n ${EXTRALIFE_OFFSITE_REPOSITORY:-} && ! -e $CONFIG ]]; then
        of_template=true repository=$EXTRALIFE_OFFSITE_REPOSITORY
        password_file=${password_file:-${EXTRALIFE_OFFSITE_PASSWORD_FILE:-}} env_file=${env_file:-${EXTRALIFE_OFFSITE_ENV_FILE:-}}
    fi
    [[ -z $repository ]] || check_offsite
}

check_offsite() {
    [[ -n $password_file && -r $password_file ]] || die "--from-offsite needs --password-file FILE, the file with the repository's password"
    [[ -z $env_file || -r $env_file ]] || die "--env-file: $env_file cannot be read"
    [[ $repository == /* || $repository == *:* ]] || die "--from-offsite: a directory needs an absolute path, not $repository"
    [[ $repository != sftp:* || (-r $ssh_key && -r $known_hosts) ]] ||
        die "an sftp: repository needs --ssh-key FILE and --known-hosts FILE: the service sees no home directory"
    [[ -z $first_config ]] || die "--config and --from-offsite exclude each other: the copy has its own configuration"
    [[ ! -e $CONFIG || -e $STATE/journal.sqlite ]] ||
        die "$CONFIG exists: this box has an installation of its own. Remove it first: deploy/uninstall.sh --delete-data"
    [[ ! -e $STATE/journal.sqlite || -e $STATE/restored-here.toml ]] ||
        die "$STATE has trainings of its own, so nothing is restored. Remove them first: deploy/uninstall.sh --delete-data"
}

# Restores the newest copy, as the service's user. After an interrupted run it does not restore existing files again.
restore_offsite() {
    local release=$1 made=$STATE/restored-here.toml
    if [[ ! -e $STATE/journal.sqlite ]]; then
        act "put the password into /etc/extralife/restic.password" keep_secret "$password_file" restic.password
        [[ -z $env_file ]] || act "put the credentials into /etc/extralife/restic.env" keep_secret "$env_file" restic.env
        local options=(--repository "$repository" --password-file /etc/extralife/restic.password)
        [[ -z $env_file ]] || options+=(--env-file /etc/extralife/restic.env)
        if [[ $repository == sftp:* ]]; then
            act "put the key into /etc/extralife/key" keep_secret "$ssh_key" key
            act "write /etc/extralife/known_hosts" install -m 644 "$known_hosts" /etc/extralife/known_hosts
            options+=(--sftp-command "$(sftp_command)")
        fi
        local do=(offsite restore --take-over "${yes[@]}")
        ! "$of_template" || do=(next-box start --if-alive "${EXTRALIFE_NEXT_BOX:-wait}")
        act "restore the newest copy to $STATE" runuser -u "$ACCOUNT" -- "$release/.venv/bin/extralifectl" "${do[@]}" \
            --to "$STATE" --runtime-dir "$RUNTIME" --config-to "$made" "${options[@]}"
        if "$of_template" && ! "$dry_run" && [[ ! -e $STATE/journal.sqlite ]]; then # nothing is copied yet
            install -m 644 "$DEFAULT_CONFIG" "$made"
            "$release/.venv/bin/extralifectl" next-box overlay "${options[@]}" -- "$made"
        fi
    else
        say "a copy was restored to $STATE before: the repository is not read again"
    fi
    "$dry_run" || first_config=$made # a dry run has restored nothing
}

# Prints the ssh command for a repository sftp:USER@HOST:/DIR or sftp://USER@HOST:PORT/DIR.
sftp_command() {
    local where=${repository#sftp:} port=''
    if [[ $where == //* ]]; then
        where=${where#//} && where=${where%%/*}
        [[ $where != *:* ]] || port=" -p ${where##*:}"
    fi
    printf 'ssh -i /etc/extralife/key -o UserKnownHostsFile=/etc/extralife/known_hosts%s %s -s sftp' "$port" "${where%%:*}"
}

keep_secret() {
    install -o "$ACCOUNT" -g "$ACCOUNT" -m 600 "$1" "/etc/extralife/$2"
}

# Borrowed packages (--packages) need no Debian packages. Without apt-get, deploy/bootstrap names the missing packages.
install_debian_packages() {
    ((${#packages[@]} == 0)) && command -v apt-get >/dev/null || return 0
    if "$dry_run"; then
        PYTHON=$1 deploy/system-packages service --dry-run
    else
        PYTHON=$1 deploy/system-packages service || die "nothing was installed; the lines above name the missing packages"
    fi
}

make_account() {
    put units/extralife.sysusers /etc/sysusers.d/extralife.conf
    getent passwd "$ACCOUNT" >/dev/null || act "make the user $ACCOUNT" systemd-sysusers /etc/sysusers.d/extralife.conf
    put units/extralife.tmpfiles /etc/tmpfiles.d/extralife.conf
    [[ -d /etc/extralife && -d $STATE ]] || act "make /etc/extralife and $STATE" systemd-tmpfiles --create /etc/tmpfiles.d/extralife.conf
}

write_config() {
    local program
    if [[ -e $CONFIG ]]; then
        [[ -z $first_config ]] || cmp -s "$first_config" "$CONFIG" ||
            say "$CONFIG exists and stays as it is: --config counts only at the first installation. To replace it:" \
                "install -m 644 $first_config $CONFIG && $prefix/current/.venv/bin/extralifectl -c $CONFIG update"
        return 0
    elif [[ -n $first_config ]]; then
        # Check the file before installing it: otherwise a refused file would become the installed configuration.
        "$dry_run" || check_config "$1" "$first_config"
        act "write $CONFIG, from $first_config" write_file "$CONFIG" "$(<"$first_config")"
    else
        act "write $CONFIG, ten games at the load that the box bears" write_file "$CONFIG" "$(<"$DEFAULT_CONFIG")"
    fi
    # Without this section, a box of AWS, Google or Azure would end unannounced. The path holds after upgrades.
    "$dry_run" || ! grep -q '^\[notice\]' "$CONFIG" || return 0
    "$dry_run" || program=$("$1/.venv/bin/python" -m supervisor.features.notices.adapters.detect)
    [[ -z ${program-} ]] || act "let $(basename "$program") announce the end of this box, in $CONFIG" write_file "$CONFIG" \
        "$(printf '%s\n\n[notice]\ncommand = "%s"\nevery_s = 5.0' "$(<"$CONFIG")" "$prefix/current/deploy/notices/$(basename "$program")")"
}

# switch RELEASE: upgrade.sh switches a running service, because it checks the new release and can go back.
switch() {
    if "$start" && [[ -n $(in_use) ]] && systemctl is-active --quiet extralife.service; then
        upgraded=true
        act "upgrade from $(in_use)" deploy/upgrade.sh --prefix "$prefix" --to "$(basename "$1")"
    else
        act "make it the current release" make_current "$1"
    fi
}

# The release in use makes the completion of shells, so that it always describes this release.
write_shell_help() {
    local ctl="$prefix/current/.venv/bin/extralifectl" each link
    for each in "${SHELL_HELP[@]}"; do
        case $each in
            bash*) put_text "/usr/local/share/$each" "$("$ctl" completion bash)" ;;
            zsh*) put_text "/usr/local/share/$each" "$("$ctl" completion zsh)" ;;
            fish*) put_text "/usr/local/share/$each" "$("$ctl" completion fish)" ;;
        esac
    done
    for each in "${LINKS[@]}"; do
        link=/usr/local/bin/$each
        [[ $(readlink "$link") == "$prefix/current/.venv/bin/$each" ]] ||
            act "link $link" ln -sfn "$prefix/current/.venv/bin/$each" "$link"
    done
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
        act "reload the daemon (it replaces itself; workers are not touched)" systemctl reload extralife.service
    fi
}

main() {
    parse "$@"
    check_host
    local python release before
    lock
    python=$(find_python)
    install_debian_packages "$python"
    make_account
    release=$prefix/releases/$(release_name "$python")
    [[ -e $release/.complete ]] || act "make $release" make_release "$release" "$python"
    "$dry_run" || check_release "$release"
    before=$(in_use)
    [[ -n $before ]] || act "make it the current release" make_current "$release" # settings may name its commands
    [[ -z $repository ]] || restore_offsite "$release"
    write_config "$release"
    "$dry_run" || check_config "$release"
    [[ -z $before || $before == "$release" ]] || switch "$release"
    put_units .
    ! "$changed" || act "reload the units" systemctl daemon-reload
    # systemd treats an empty unit file as masked. Without this sync a power cut could leave one, and the box would never train.
    "$dry_run" || ! "$changed" || sync
    run_service
    if "$dry_run"; then
        "$changed" || echo "install: nothing to do"
        exit 0
    fi
    write_shell_help
    ! "$changed" || sync # makes the links that enable the units durable
    "$changed" || echo "install: everything is up to date"
    echo
    local skip=()
    [[ -z $repository ]] || skip=(--skip copies) # the restore has just read and written the repository
    "$prefix/current/.venv/bin/extralifectl" -c "$CONFIG" doctor "${skip[@]}" || echo "install: correct the findings that are bad"
    cat <<END

  status        extralifectl status
  settings      edit $CONFIG, then: extralifectl update
  log           journalctl -u extralife
  remove        deploy/uninstall.sh
END
}

main "$@"
