#!/usr/bin/env bash
# Sets a Debian or Ubuntu host up as a runner with two users: gpu-runner, which talks to GitHub and judges, and gpu-suite,
# which runs suite.py, compilers and kernels without network. As often as wanted: what is there stays as it is.
#
#   sudo ./install.sh --repository OWNER/NAME --label gpu-rtx4090 --token FILE --application FILE --sha256 HASH
#   sudo ./install.sh --remove
#
# With --dry-run it prints each command and runs none. docs/runners.md says what each file is for.
set -euo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C

SCRIPTS=/opt/gpu-harness-runner
APPLICATION=/opt/actions-runner
STATE=/var/lib/gpu-harness-runner
SUITE=/var/lib/gpu-harness-suite
UNITS=/etc/systemd/system
CONFIG=/etc/gpu-harness-runner.conf
TOKEN=/etc/gpu-harness-runner.token
PACKAGES=(bash ca-certificates coreutils curl g++ git python3 python3-dev python3-pip python3-venv util-linux)
OLDEST_SYSTEMD=247

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here"
files=(*.sh *.py)
units=(*.service *.slice *.timer *.socket)

dry_run='' remove='' packages=yes instance=gpu1 repository='' label='' token='' application='' sha256=''

usage() {
    cat <<'END'
install.sh [--repository OWNER/NAME] [--label gpu-MODEL] [--token FILE] [--application FILE --sha256 HASH]
           [--instance NAME] [--no-packages] [--dry-run]
install.sh --remove [--dry-run]
END
}

fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 2
}

# Runs a command, or prints it.
run() {
    if [[ $dry_run ]]; then
        printf '%q ' "$@"
        printf '\n'
    else
        "$@"
    fi
}

same() { cmp --quiet -- "$1" "$2" && [[ $(stat --format=%a:%u "$2") == "$3:0" ]]; }

put() { # MODE FILE PLACE
    same "$2" "$3" "$1" || run install --mode="$1" --owner=root --group=root -- "$2" "$3"
}

folder() { # MODE OWNER PATH
    [[ -d $3 && $(stat --format=%a:%U "$3") == "$1:$2" ]] || run install --directory --mode="$1" --owner="$2" --group="$2" -- "$3"
}

user() {
    getent passwd "$1" > /dev/null || run useradd --system --user-group --no-create-home --shell /usr/sbin/nologin -- "$1"
}

check_host() {
    local version
    # shellcheck source=/dev/null
    [[ -r /etc/os-release ]] && . /etc/os-release
    [[ " ${ID-} ${ID_LIKE-} " == *" debian "* || ${ID-} == ubuntu ]] ||
        fail "this is ${PRETTY_NAME-no Debian or Ubuntu}: follow docs/runners.md by hand"
    version=$(systemctl --version | sed -n '1s/^systemd \([0-9]*\).*/\1/p')
    ((${version:-0} >= OLDEST_SYSTEMD)) || fail "systemd is ${version:-not there}; expected $OLDEST_SYSTEMD or newer"
    command -v nvidia-smi > /dev/null || echo "install.sh: nvidia-smi is not there: install NVIDIA's driver before the first job" >&2
}

install_packages() {
    local missing=() name
    for name in "${PACKAGES[@]}"; do
        [[ $(dpkg-query --show --showformat='${Status}' "$name" 2> /dev/null) == *' installed' ]] || missing+=("$name")
    done
    if ((${#missing[@]})); then
        run env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends -- "${missing[@]}"
    fi
}

install_application() {
    [[ $application ]] || return 0
    [[ $sha256 =~ ^[0-9a-f]{64}$ ]] || fail "--application needs --sha256, 64 digits as its release says"
    printf '%s  %s\n' "$sha256" "$application" | sha256sum --check --quiet - ||
        fail "$application is not the file of that SHA-256"
    folder 755 root "$APPLICATION"
    run tar --extract --no-same-owner --file "$application" --directory "$APPLICATION"
    run "$APPLICATION/bin/installdependencies.sh"
}

configure() {
    [[ -e $CONFIG ]] || run install --mode=644 --owner=root --group=root -- gpu-harness-runner.conf "$CONFIG"
    if [[ $repository ]]; then
        [[ $repository =~ ^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$ ]] || fail "'$repository' is no OWNER/NAME"
        run sed --in-place "s|^repository = .*|repository = $repository|" "$CONFIG"
    fi
    if [[ $label ]]; then
        [[ $label =~ ^[A-Za-z0-9][A-Za-z0-9_.-]*$ ]] || fail "'$label' is no label"
        run sed --in-place "s|^labels = .*|labels = self-hosted linux x64 $label|" "$CONFIG"
    fi
    if [[ $token ]]; then
        run install --mode=600 --owner=root --group=root -- "$token" "$TOKEN"
    fi
}

# What a runner cannot start without, a line each.
lacking() {
    local config=$CONFIG
    [[ -e $config ]] || config=gpu-harness-runner.conf
    [[ $repository ]] || ! grep --quiet '^repository = OWNER/NAME$' "$config" || echo "repository whose jobs may run: --repository, or $CONFIG"
    [[ $label ]] || ! grep --quiet '^labels = .*gpu-MODEL$' "$config" || echo "label of the card: --label, or $CONFIG"
    [[ $token || -e $TOKEN ]] || echo "token that may register runners: --token, or $TOKEN (mode 600)"
    [[ $application || -x $APPLICATION/run.sh ]] || echo "runner application of GitHub: --application and --sha256, or $APPLICATION"
}

set_up() {
    check_host
    [[ $packages ]] && install_packages
    user gpu-runner
    user gpu-suite
    folder 755 root "$SCRIPTS"
    folder 755 root "$STATE"
    folder 755 root "$STATE/work"
    folder 700 root "$STATE/root"
    folder 755 root "$STATE/quarantine"
    folder 700 gpu-runner "$STATE/notes"
    folder 700 gpu-suite "$SUITE"
    local name left=()
    for name in "${files[@]}"; do put 755 "$name" "$SCRIPTS/$name"; done
    for name in "${units[@]}"; do put 644 "$name" "$UNITS/$name"; done
    configure
    install_application
    run systemctl daemon-reload
    run systemctl enable --quiet gpu-clocks.service suite-user.socket "runner@$instance.service"
    run systemctl start suite-user.socket
    mapfile -t left < <(lacking)
    if ((${#left[@]})); then
        printf 'Not started yet. There is still no\n'
        printf '  - %s\n' "${left[@]}"
        printf 'Then: systemctl start runner@%s.service\n' "$instance"
    else
        run systemctl start gpu-clocks.service "runner@$instance.service"
    fi
    echo 'The settings of the repository and the acceptance test are left: docs/runners.md.'
}

# What the site wrote stays: the configuration, the token, and marks of quarantine.
take_down() {
    local name running=()
    mapfile -t running < <(systemctl list-units --all --plain --no-legend 'runner@*' 2> /dev/null | cut --delimiter=' ' --fields=1)
    run systemctl disable --now --quiet "${running[@]}" "runner@$instance.service" suite-user.socket gpu-clocks.service || true
    for name in "${units[@]}"; do run rm --force -- "$UNITS/$name"; done
    run systemctl daemon-reload
    for name in gpu-runner gpu-suite; do
        if getent passwd "$name" > /dev/null; then
            # A process that is killed goes on for a moment, and userdel refuses who has one.
            # shellcheck disable=SC2016 # the inner shell expands it
            run timeout 10 sh -c 'while pkill --signal KILL --uid "$1"; do sleep 0.1; done' sh "$name" || true
            run userdel -- "$name"
        fi
    done
    run rm --recursive --force -- "$SCRIPTS" "$APPLICATION" "$SUITE" "$STATE/work" "$STATE/notes" "$STATE/root"
    run rmdir --ignore-fail-on-non-empty -- "$STATE/quarantine" "$STATE"
    echo "Kept: $CONFIG, $TOKEN, and marks in $STATE/quarantine."
}

while (($#)); do
    case $1 in
        --dry-run) dry_run=yes ;;
        --remove) remove=yes ;;
        --no-packages) packages='' ;;
        --help) usage && exit 0 ;;
        --repository | --label | --token | --application | --sha256 | --instance)
            (($# > 1)) || fail "$1 needs a value"
            [[ $1 != --token && $1 != --application ]] || [[ -r $2 ]] || fail "$2 cannot be read"
            printf -v "${1#--}" '%s' "$2"
            shift
            ;;
        *) usage >&2 && fail "unknown: $1" ;;
    esac
    shift
done
[[ $token != "" ]] && token=$(realpath -- "$token")
[[ $application != "" ]] && application=$(realpath -- "$application")
[[ $instance =~ ^[A-Za-z0-9_-]{1,40}$ ]] || fail "'$instance' is no name of an instance"
[[ $dry_run || $EUID == 0 ]] || fail "only root can: sudo, or --dry-run"
if [[ $remove ]]; then take_down; else set_up; fi
