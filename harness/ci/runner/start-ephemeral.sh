#!/bin/bash
# One job on one registration on one fresh folder. runner@.service calls, with the instance's name:
#
#   prepare  as root, before: refuses in quarantine, wipes, notes the cards' state, gets a configuration for one job
#   run      as the runner's user: becomes the runner
#   finish   as root, after: ends every process of the user, looks what changed, wipes
#   limit    as root, every minute: ends a job that has run for longer than any may
#   fetch    as root, here or on another machine: asks GitHub for a configuration for one job, and prints it
#
# The configuration (JIT) is the only credential that the runner's user sees: it is good for one job of one runner,
# which GitHub removes afterwards. The token that asks for it is read by root alone, and better kept elsewhere: a file
# RUN/NAME.jitconfig that root put there is taken instead of asking.

# shellcheck source-path=SCRIPTDIR source=lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

# Xids that a program causes by itself; NVIDIA's device plugin for Kubernetes leaves a card in service after these
# (https://github.com/NVIDIA/k8s-device-plugin/blob/main/internal/rm/health.go). A wrong kernel is no broken card.
readonly OF_PROGRAMS=' 13 31 43 45 68 109 '

# ---------------------------------------------------------------- what only root may

need_owner() {
  [[ $EUID == "$OWNER" ]] || fail "'$1' is for user $OWNER, before and after the job: run by user $EUID."
}

# The runner's user must be nobody of importance.
runner_uid() {
  local uid group
  uid=$(id -u -- "${SETTING[user]}" 2> /dev/null) || fail "There is no user ${SETTING[user]}: useradd --system --shell /usr/sbin/nologin ${SETTING[user]}"
  [[ $uid != 0 ]] || fail "${SETTING[user]} is root: jobs must run as a user of their own."
  for group in $(id -Gn -- "${SETTING[user]}"); do
    case $group in
      root | sudo | wheel | admin | docker | podman | lxd | incus | incus-admin | libvirt | kvm | disk | adm | systemd-journal)
        fail "${SETTING[user]} is in the group $group, which gives a job root or others' secrets: gpasswd -d ${SETTING[user]} $group"
        ;;
      *) ;;
    esac
  done
  printf '%s' "$uid"
}

# Processes can leave a control group only with somebody's help, but then they would outlive the unit.
end_processes_of() {
  local uid=$1 try folder left
  if [[ $uid == "$EUID" ]]; then
    say "Processes of user $uid are not ended: that is who runs this."
    return
  fi
  for try in 1 2 3 4 5 6 7 8 9 10; do
    left=''
    while read -r folder; do
      if ! is_zombie "$folder"; then
        kill -KILL "${folder##*/}" 2> /dev/null || true
        left+=" ${folder##*/}"
      fi
    done < <(find /proc -mindepth 1 -maxdepth 1 -name '[0-9]*' -uid "$uid" 2> /dev/null || true)
    [[ -n $left ]] || return 0
    say "Ended what the job left ($try):$left"
    sleep 1
  done
  quarantine "Processes of ${SETTING[user]} cannot be ended:$left"
}

is_zombie() {
  local line=''
  read -r line 2> /dev/null < "$1/stat" || return 0
  line=${line##*) }
  [[ $line == Z* ]]
}

# Instances share the user, and ending one's processes would end the other's job: the first to come has the machine.
# Prints which other one has it, if any does: its word counts in this boot, and while its unit is not down.
other_instance() {
  local other='' boot='' state
  read -r other boot 2> /dev/null < "$STATE/root/instance" || return 0
  [[ $other != "$instance" && $boot == "$(< /proc/sys/kernel/random/boot_id)" ]] || return 0
  state=$(systemctl show --property=ActiveState --value "runner@$other.service") || state=unknown
  [[ $state == inactive || $state == failed ]] || say "runner@$other.service ($state)"
}

take_machine() {
  local lock=$STATE/root/instance other
  other=$(other_instance)
  if [[ -z $other ]]; then
    rm -f -- "$lock"
    if (set -o noclobber && say "$instance $(< /proc/sys/kernel/random/boot_id)" > "$lock") 2> /dev/null; then
      return
    fi
    other='an instance that came at the same moment'
  fi
  fail "This machine is taken by $other: one instance per host, with the labels of all its cards."
}

# What a hook could only say as the job's user becomes a mark that no job can take away.
adopt_marks() {
  local mark words
  for mark in "$STATE/notes"/quarantine-*; do
    words=''
    if [[ -f $mark && ! -L $mark ]]; then
      IFS= read -r -n 200 words < "$mark" || true
    fi
    quarantine "$(printable "${words:-A hook gave no reason.}")"
    return # one is enough to stop the machine, and a job can make any number
  done
}

# When the job began, in seconds since 1970; fails where none has. The runner says so in the journal, where no job can take
# it back; the note of job-started.sh is told of as well.
job_began() {
  local began=$STATE/root/$instance.began notes=("$STATE/notes"/*.state) now at
  if [[ ! -f $began ]]; then
    now=$(date +%s)
    at=$(stat -c %Y -- "$STATE/root/$instance.state" 2> /dev/null) || return 1
    if ! ((${#notes[@]})); then
      command -v journalctl > /dev/null || return 1
      [[ $(journalctl --quiet --no-pager --output=cat --unit="runner@$instance.service" --since="@$at" 2> /dev/null ||
        true) == *'Running job: '* ]] || return 1
    fi
    printf '%s\n' "$now" > "$began"
  fi
  cat -- "$began"
}

# A job's timeout is kept by a process of its own user, which it can stop. This is root's.
limit() {
  local began ran
  need_owner limit
  read_config
  [[ -z $(other_instance) ]] && began=$(job_began) || return 0
  ran=$((($(date +%s) - began) / 60))
  ((ran >= SETTING[job_minutes])) || return 0
  say "A job has run for $ran minutes, and ${SETTING[job_minutes]} are allowed (job_minutes): it is ended."
  systemctl kill --kill-whom=all --signal=SIGKILL "runner@$instance.service"
}

# rm goes by open folders, not by paths, so links of the job lead nowhere.
wipe() {
  local uid=$1
  rm -rf --one-file-system -- "$STATE/work/$instance" "$STATE/notes"
  # What a suite has compiled could be another's undoing.
  [[ ! -d $SUITE ]] || find "$SUITE" -mindepth 1 -xdev -delete
  rm -f -- "$RUN/$instance.jitconfig.user" "$STATE/root/$instance.began"
  mkdir -m 700 -- "$STATE/notes"
  chown -- "$uid" "$STATE/notes"
}

# What the kernel said of a card since it was last looked at: a broken card puts the machine in quarantine, once.
read_kernel_log() {
  local looked=$STATE/root/kernel-log-until since=0 now line xid bad=''
  now=$(date +%s)
  if [[ -f $looked ]]; then
    read -r since < "$looked" || since=0
  fi
  [[ $since =~ ^[0-9]+$ ]] || since=0
  if ! command -v journalctl > /dev/null; then
    say "Without journalctl nobody looks for the driver's errors (Xid)."
    return
  fi
  while IFS= read -r line; do
    if [[ $line =~ NVRM:\ Xid\ \([^\)]*\):\ ([0-9]+) ]]; then
      xid=${BASH_REMATCH[1]}
      if [[ $OF_PROGRAMS == *" $xid "* ]]; then
        say "A program made the driver say: $(printable "$line")"
      else
        bad+="$(printable "$line") "
      fi
    elif [[ $line == *'fallen off the bus'* ]]; then
      bad+="$(printable "$line") "
    fi
  done < <(journalctl --dmesg --quiet --no-pager --output=cat --since "@$since" 2> /dev/null || true)
  printf '%s\n' "$now" > "$looked"
  [[ -z $bad ]] || quarantine "The driver reports an error of the card: $bad"
}

prepare() {
  local uid held work=$STATE/work/$instance
  need_owner prepare
  read_config
  uid=$(runner_uid) || exit 1
  require_trusted "$APPLICATION/run.sh" 022
  take_machine
  adopt_marks
  read_kernel_log
  held=$(quarantine_reason) || exit 1
  [[ -z $held ]] || fail "$held"
  end_processes_of "$uid"
  wipe "$uid"
  read_cards
  state > "$STATE/root/$instance.state"
  get_configuration "$uid"
  # The application rewrites itself and keeps credentials in its folder, so each job gets a copy that nobody has used.
  mkdir -p -- "$work/runner" "$work/home"
  cp -R --reflink=auto -- "$APPLICATION/." "$work/runner"
  chown -R -- "$uid" "$work"
  # To go through, for suite-user.py's user: what is below is the runner's own, and its umask leaves others nothing.
  chmod 711 -- "$work"
}

# Delivered by somebody whom this host does not have to trust with a token, or asked for.
get_configuration() {
  local uid=$1 given=$RUN/$instance.jitconfig answer
  if [[ -e $given ]]; then
    require_trusted "$given" 077
    answer=$(< "$given")
    rm -f -- "$given"
  else
    answer=$(fetch) || exit 1
  fi
  [[ $answer =~ ^[A-Za-z0-9+/]+=*$ ]] || fail "The configuration for $instance is not in base64."
  (
    umask 377
    printf '%s\n' "$answer" > "$given.user"
  )
  chown -- "$uid" "$given.user"
}

finish() {
  local uid suite wrong='' before=$STATE/root/$instance.state
  need_owner finish
  read_config
  uid=$(runner_uid) || exit 1
  # Of an instance that was refused: what is here is another one's.
  [[ -z $(other_instance) ]] || return 0
  end_processes_of "$uid"
  if suite=$(id -u -- gpu-suite 2> /dev/null); then
    end_processes_of "$suite"
  fi
  adopt_marks
  read_kernel_log
  if [[ -f $before ]]; then
    read_cards_or_quarantine "$uid"
    wrong=$(changes_since "$before" && faults)
    rm -f -- "$before"
  fi
  wipe "$uid"
  rm -f -- "$STATE/root/instance"
  [[ -z $wrong ]] && exit 0
  quarantine "${wrong//$'\n'/ }"
  fail "${wrong//$'\n'/ } This machine takes no more jobs until a mark in $STATE/quarantine is removed."
}

# A card that no longer answers after a job is the strongest reason of all.
read_cards_or_quarantine() {
  local why
  if ! why=$( (read_cards) 2>&1); then
    rm -f -- "$STATE/root/$instance.state" "$STATE/root/instance"
    wipe "$1"
    quarantine "After a job: $why"
    fail "$why"
  fi
  read_cards
}

# ---------------------------------------------------------------- GitHub

# POST /repos/OWNER/NAME/actions/runners/generate-jitconfig or /orgs/OWNER/...: 201 and "encoded_jit_config". The token
# goes to curl by its standard input: arguments can be read by everybody on the host.
fetch() {
  local token owner path labels answer status body
  [[ -n ${SETTING[labels]} ]] || fail "$CONFIG has no labels: say which jobs the runner takes."
  require_trusted "$TOKEN_FILE" 077
  token=$(< "$TOKEN_FILE")
  [[ $token =~ ^[A-Za-z0-9_.-]{20,}$ ]] || fail "$TOKEN_FILE holds no token: one line, as GitHub showed it."
  path=repos/${SETTING[repository]}
  owner=${SETTING[repository]%%/*}
  [[ ${SETTING[scope]} == repository ]] || path=orgs/$owner
  labels=\"${SETTING[labels]// /\",\"}\"
  # A name may be taken by a runner that never came back, which GitHub keeps for a day: so each has its own.
  body="{\"name\":\"$instance-$(date +%s)\",\"runner_group_id\":${SETTING[runner_group]},\"labels\":[$labels],\"work_folder\":\"_work\"}"
  body=${body//\"/\\\"} # once more in quotes
  answer=$(
    curl --config - << END
url = "${SETTING[api]}/$path/actions/runners/generate-jitconfig"
request = "POST"
proto = "=https"
header = "Accept: application/vnd.github+json"
header = "Authorization: Bearer $token"
header = "X-GitHub-Api-Version: 2022-11-28"
data = "$body"
max-time = 60
retry = 3
silent
show-error
write-out = "\\n%{http_code}"
END
  ) || fail "GitHub cannot be reached at ${SETTING[api]}."
  status=${answer##*$'\n'}
  case $status in
    201) ;;
    401) fail "GitHub does not know the token in $TOKEN_FILE: it has expired, or is not whole." ;;
    403 | 404) fail "GitHub refuses ($status): the token must have 'Administration: write' on ${SETTING[repository]}, or for an organization 'Self-hosted runners: write', and the group ${SETTING[runner_group]} must exist." ;;
    *) fail "GitHub answered $status: $(printable "${answer%$'\n'*}")" ;;
  esac
  [[ $answer =~ \"encoded_jit_config\"[[:space:]]*:[[:space:]]*\"([A-Za-z0-9+/]+=*)\" ]] ||
    fail "GitHub's answer has no encoded_jit_config."
  printf '%s\n' "${BASH_REMATCH[1]}"
}

# ---------------------------------------------------------------- the runner

# Becomes the runner, with an environment of these names alone. It takes ACTIONS_RUNNER_INPUT_JITCONFIG out of its own
# environment before a job starts (CommandSettings.cs); on the command line every user of the host could read it.
run() {
  local work=$STATE/work/$instance jitconfig name
  read_config
  jitconfig=$(< "$RUN/$instance.jitconfig.user") || fail "There is no configuration for $instance: 'prepare' comes first."
  for name in $(compgen -e); do
    unset "$name" || true
  done
  export HOME=$work/home LANG=C.UTF-8 USER=${SETTING[user]} LOGNAME=${SETTING[user]} PATH=${SETTING[job_path]}
  export ACTIONS_RUNNER_HOOK_JOB_STARTED=$here/job-started.sh ACTIONS_RUNNER_HOOK_JOB_COMPLETED=$here/job-completed.sh
  export ACTIONS_RUNNER_PRINT_LOG_TO_STDOUT=1 # to the journal: the files are wiped
  export ACTIONS_RUNNER_INPUT_JITCONFIG=$jitconfig
  cd -- "$work/runner" || fail "$work/runner is not there: 'prepare' makes it."
  umask 077
  exec ./run.sh
}

here=${BASH_SOURCE[0]%/*}
verb=${1:-} instance=${2:-}
[[ $instance =~ ^[A-Za-z0-9][A-Za-z0-9_-]{0,40}$ ]] ||
  fail 'usage: start-ephemeral.sh prepare|run|finish|limit|fetch NAME, a name of letters, digits, - and _'
case $verb in
  prepare) prepare ;;
  run) run ;;
  finish) finish ;;
  limit) limit ;;
  fetch)
    need_owner fetch
    read_config
    fetch
    ;;
  *) fail "There is no '$(printable "$verb")': prepare, run, finish, limit or fetch." ;;
esac
