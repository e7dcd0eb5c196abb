# shellcheck shell=bash
# What the scripts beside this file share. Sourced by them, never run.
#
# Needs bash 4.4, GNU coreutils and nvidia-smi. One more tool, curl, is used by start-ephemeral.sh as root.

# Everything that could be turned against us is fixed here: no variable of the environment moves a path, and PATH is
# not the caller's. Who writes the configuration is OWNER, by number.
# shellcheck disable=SC2034 # not every script uses each of them
{
  readonly CONFIG=/etc/gpu-harness-runner.conf
  readonly TOKEN_FILE=/etc/gpu-harness-runner.token
  readonly STATE=/var/lib/gpu-harness-runner
  readonly RUN=/run/gpu-harness-runner
  readonly APPLICATION=/opt/actions-runner
  readonly SUITE=/var/lib/gpu-harness-suite
  readonly OWNER=0
}
PATH=/usr/sbin:/usr/bin:/sbin:/bin

export PATH LC_ALL=C # messages and figures are parsed
unset BASH_ENV ENV CDPATH GLOBIGNORE IFS
set -euo pipefail
umask 022
shopt -s nullglob

# Beyond this a card says of itself that something is wrong, in any field.
readonly BROKEN='GPU is lost|GPU requires reset|Unknown Error|ERR!'
# What a field says where the card, the driver or the user has nothing to say. Not a fault.
readonly UNTOLD='\[?N/A\]?|\[?Not Supported\]?|\[Unknown field\]|\[Requested functionality has been deprecated\]|\[Insufficient Permissions\]'
# A locked SM clock is passed by no reading; a clock moves in steps of 15 MHz, of which two are let pass.
readonly CLOCK_SLACK_MHZ=30

# The settings that a job could have changed, had it come by root.
readonly STATE_FIELDS=(persistence_mode compute_mode power.limit mig.mode.current mig.mode.pending ecc.mode.current
  ecc.mode.pending clocks.applications.graphics clocks.applications.memory driver_version vbios_version)
readonly HEALTH_FIELDS=(name ecc.errors.uncorrected.volatile.total retired_pages.pending remapped_rows.pending
  remapped_rows.failure gpu_recovery_action clocks.current.sm compute_cap)

say() {
  printf '%s\n' "$*"
}

# Hooks put their own in its place.
fail() {
  printf 'gpu-harness-runner: %s\n' "$1" >&2
  exit 1
}

# Somebody else's words on one line of a log: GitHub reads commands in what a hook prints.
printable() {
  local text=${1//[^A-Za-z0-9 ._\/:@+=,()\[\]-]/?}
  printf '%s' "${text:0:200}"
}

# ---------------------------------------------------------------- configuration

# Every setting: its name and default, what it may be, as a pattern for the whole value, and what to tell whoever got it
# wrong.
declare -A SETTING=() PATTERN=() EXPECTED=()
setting() {
  SETTING[$1]=$2 PATTERN[$1]=$3 EXPECTED[$1]=$4
}
setting repository '' '[A-Za-z0-9-]+/[A-Za-z0-9._-]+' 'OWNER/NAME'
setting events 'push workflow_dispatch schedule' '(push|workflow_dispatch|schedule)( (push|workflow_dispatch|schedule))*' \
  'some of: push workflow_dispatch schedule'
setting default_branch main '[A-Za-z0-9._/-]+' 'the name of a branch'
setting mirror_branches yes 'yes|no' 'yes or no'
setting protected_mirror yes 'yes|no' 'yes or no'
setting workflows '' '[A-Za-z0-9._/-]+( [A-Za-z0-9._/-]+)*' 'paths such as .github/workflows/perf-pr.yml'
setting cards all 'all|[A-Za-z0-9:.-]+( [A-Za-z0-9:.-]+)*' "all, or UUIDs as 'nvidia-smi -L' prints them"
setting persistence keep 'keep|on' 'keep or on'
setting sm_clock_mhz keep 'keep|[1-9][0-9]{1,4}(-[1-9][0-9]{1,4})?' 'keep, MHZ or MIN-MAX'
setting memory_clock_mhz keep 'keep|[1-9][0-9]{1,4}(-[1-9][0-9]{1,4})?' 'keep, MHZ or MIN-MAX'
setting power_limit_w keep 'keep|[1-9][0-9]{0,3}' 'keep or whole watts'
setting compute_mode keep 'keep|default|exclusive_process' 'keep, default or exclusive_process'
setting user gpu-runner '[a-z_][a-z0-9_-]*' 'the name of a user'
setting labels '' '[A-Za-z0-9._-]+( [A-Za-z0-9._-]+)*' 'words'
setting scope repository 'repository|organization' 'repository or organization'
setting runner_group 1 '[1-9][0-9]*' 'the number of a runner group'
setting api https://api.github.com 'https://[A-Za-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9._/-]+)?' \
  'https://api.github.com, or https://HOST/api/v3'
setting job_path /usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin '/[A-Za-z0-9._/-]*(:/[A-Za-z0-9._/-]*)*' \
  'absolute folders with : between them'
setting job_minutes 250 '[1-9][0-9]{0,3}' 'whole minutes'
readonly PATTERN EXPECTED

# A file that nobody but OWNER can have written. The mask is what group and others may not: 022 write, 077 anything.
require_trusted() {
  local path=$1 mask=$2 owner='' mode=''
  [[ -f $path && ! -L $path ]] || fail "$path is missing, or is no regular file."
  read -r owner mode <<< "$(stat -c '%u %a' -- "$path")"
  [[ $owner == "$OWNER" ]] || fail "$path belongs to user $owner; it must belong to user $OWNER, or a job could write it."
  if [[ ! $mode =~ ^[0-7]+$ ]] || (((8#$mode & 8#$mask) != 0)); then
    fail "$path has mode $mode; group and others must have none of $mask."
  fi
}

# The file is read line by line and never run: a value is text, whatever stands in it.
read_config() {
  require_trusted "$CONFIG" 022
  local line key value number=0
  local -A seen=()
  while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    [[ $line =~ ^[[:blank:]]*(#.*)?$ ]] && continue
    [[ $line =~ ^[[:blank:]]*([a-z_]+)[[:blank:]]*=[[:blank:]]*([^[:blank:]].*)$ ]] ||
      fail "$CONFIG, line $number, is no 'setting = value': $(printable "$line")"
    key=${BASH_REMATCH[1]}
    value=${BASH_REMATCH[2]%"${BASH_REMATCH[2]##*[![:blank:]]}"}
    [[ -n ${PATTERN[$key]:-} ]] ||
      fail "$CONFIG, line $number: there is no setting $key. There are: $(printf '%s\n' "${!PATTERN[@]}" | sort | tr '\n' ' ')"
    [[ -z ${seen[$key]:-} ]] || fail "$CONFIG, line $number: $key is set twice."
    [[ $value =~ ^(${PATTERN[$key]})$ ]] ||
      fail "$CONFIG, line $number: $key is '$(printable "$value")'; expected ${EXPECTED[$key]}."
    seen[$key]=1
    SETTING[$key]=$value
  done < "$CONFIG"
  [[ -n ${SETTING[repository]} ]] || fail "$CONFIG does not say whose jobs may run: set repository = OWNER/NAME."
}

# The clocks policy in one line: what gpu-clocks.sh set, and what job-started.sh asks for.
policy() {
  local key said=()
  for key in persistence sm_clock_mhz memory_clock_mhz power_limit_w compute_mode; do
    said+=("$key=${SETTING[$key]}")
  done
  printf '%s' "${said[*]}"
}

clocks_are_locked() {
  [[ ${SETTING[sm_clock_mhz]} != keep || ${SETTING[memory_clock_mhz]} != keep ]]
}

# ---------------------------------------------------------------- the cards

# CARDS holds UUIDs, FACT what each says: FACT[UUID/field].
CARDS=()
declare -A FACT=()

# A driver that hangs must not hang the job.
smi() {
  timeout 60 nvidia-smi "$@"
}

# nvidia-smi once for all cards, or once for each that is named, so that a card that is gone is noticed. Where it fails,
# the failing answer alone is printed.
on_cards() {
  local card answer all=''
  if [[ ${SETTING[cards]} == all ]]; then
    smi "$@"
    return
  fi
  for card in ${SETTING[cards]}; do
    if ! answer=$(smi -i "$card" "$@"); then
      say "$answer"
      return 1
    fi
    all+=$answer$'\n'
  done
  printf '%s' "$all"
}

# A row for each card, below a line with those of the fields that this driver's nvidia-smi knows. They come and go:
# application clocks are on their way out, remapped rows came into this query late. Where it fails, why.
table() {
  local fields=("$@") answer='' unknown field left
  while ((${#fields[@]})); do
    if answer=$(on_cards "--query-gpu=$(comma "${fields[@]}")" --format=csv,noheader,nounits 2>&1); then
      say "$(comma "${fields[@]}")"
      say "$answer"
      return 0
    fi
    [[ $answer =~ Field\ \"([^\"]+)\"\ is\ not\ a\ valid\ field ]] || break
    unknown=${BASH_REMATCH[1]}
    left=()
    for field in "${fields[@]}"; do
      [[ $field == "$unknown" ]] || left+=("$field")
    done
    ((${#left[@]} < ${#fields[@]})) || break
    fields=("${left[@]}")
  done
  say "${answer:-it printed nothing}"
  return 1
}

comma() {
  local IFS=,
  printf '%s' "$*"
}

# Fills CARDS and FACT.
read_cards() {
  local answer row fields values uuid i
  answer=$(table uuid "${STATE_FIELDS[@]}" "${HEALTH_FIELDS[@]}") ||
    fail "nvidia-smi does not answer for the cards ($(printable "${SETTING[cards]}")): $(printable "${answer%%$'\n'*}")"
  IFS=, read -r -a fields <<< "${answer%%$'\n'*}"
  CARDS=()
  FACT=()
  while IFS= read -r row; do
    IFS=, read -r -a values <<< "$row"
    uuid=${values[0]:-}
    [[ $uuid =~ ^(GPU|MIG)-[A-Za-z0-9-]+$ ]] || fail "nvidia-smi names a card that is no UUID: '$(printable "$row")'"
    CARDS+=("$uuid")
    for i in "${!fields[@]}"; do
      FACT[$uuid/${fields[i]}]=$(trimmed "${values[i]:-}")
    done
  done <<< "${answer#*$'\n'}"
  read_remapped_rows
}

trimmed() {
  local text=${1#"${1%%[![:blank:]]*}"}
  printf '%s' "${text%"${text##*[![:blank:]]}"}"
}

fact() {
  printf '%s' "${FACT[$1/$2]:-[Unknown field]}"
}

is_told() {
  [[ ! $1 =~ ^($UNTOLD)$ ]]
}

# Where --query-gpu does not know remapped rows, an older option does.
read_remapped_rows() {
  local rows uuid pending failure
  [[ $(fact "${CARDS[0]}" remapped_rows.pending) == '[Unknown field]' ]] || return 0
  rows=$(on_cards --query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure \
    --format=csv,noheader 2> /dev/null) || return 0
  while IFS=', ' read -r uuid pending failure; do
    [[ $uuid == GPU-* ]] || continue
    FACT[$uuid/remapped_rows.pending]=$pending
    FACT[$uuid/remapped_rows.failure]=$failure
  done <<< "$rows"
}

# A sentence for everything that is wrong with a card; nothing where all is well.
faults() {
  local uuid key value
  for uuid in "${CARDS[@]}"; do
    for key in "${!FACT[@]}"; do
      if [[ $key == "$uuid"/* && ${FACT[$key]} =~ $BROKEN ]]; then
        say "$uuid says '$(printable "${FACT[$key]}")' of ${key#*/}: it is lost, or must be reset."
      fi
    done
    value=$(fact "$uuid" ecc.errors.uncorrected.volatile.total)
    if [[ $value =~ ^[0-9]+$ ]] && ((10#$value > 0)); then
      say "$uuid has had $value uncorrectable memory errors since its driver was loaded: reset it, and look at 'nvidia-smi -q -d ECC'."
    fi
    for key in retired_pages.pending remapped_rows.pending; do
      value=$(fact "$uuid" "$key")
      if is_told "$value" && [[ ! $value =~ ^(No|0)$ ]]; then
        say "$uuid has memory that waits to be taken out of use ($key is $(printable "$value")): reset the card, or reboot."
      fi
    done
    value=$(fact "$uuid" remapped_rows.failure)
    if is_told "$value" && [[ ! $value =~ ^(No|0)$ ]]; then
      say "$uuid could not replace a bad row of its memory: it has to be exchanged."
    fi
    value=$(fact "$uuid" gpu_recovery_action)
    if is_told "$value" && [[ $value != None ]]; then
      say "$uuid asks to be recovered: $(printable "$value")."
    fi
  done
}

# Processes with a context on a card: 'PID NAME' a line. A desktop counts: what it draws shares the card.
processes() {
  local rows uuid pid name
  rows=$(on_cards --query-compute-apps=gpu_uuid,pid,process_name --format=csv,noheader) || return 1
  while IFS=, read -r uuid pid name; do
    pid=$(trimmed "$pid")
    if [[ $uuid == GPU-* || $uuid == MIG-* ]] && [[ $pid =~ ^[0-9]+$ ]]; then
      say "$pid $(printable "$(trimmed "$name")")"
    fi
  done <<< "$rows"
}

# Whole watts: the driver prints 250.00.
watts() {
  printf '%.0f' "$1"
}

# A sentence for everything about the clocks policy that is not as configured and can be read back.
policy_faults() {
  local uuid value want
  for uuid in "${CARDS[@]}"; do
    value=$(fact "$uuid" persistence_mode)
    if [[ ${SETTING[persistence]} == on && $value != Enabled ]]; then
      say "$uuid has persistence mode $(printable "$value"); on is configured."
    fi
    value=$(fact "$uuid" power.limit) want=${SETTING[power_limit_w]}
    if [[ $want != keep ]] && [[ ! $value =~ ^[0-9]+(\.[0-9]+)?$ || $(watts "$value") != "$want" ]]; then
      say "$uuid has a power limit of $(printable "$value") W; $want W are configured."
    fi
    value=$(fact "$uuid" compute_mode) want=${SETTING[compute_mode]}
    if [[ $want != keep && ${value,,} != "$want" ]]; then
      say "$uuid has compute mode $(printable "$value"); $want is configured."
    fi
    value=$(fact "$uuid" clocks.current.sm) want=${SETTING[sm_clock_mhz]}
    if [[ $want != keep && $value =~ ^[0-9]+$ ]] && ((10#$value > ${want#*-} + CLOCK_SLACK_MHZ)); then
      say "$uuid runs at $value MHz, above the $want MHz that it is to be locked at: the lock is gone."
    fi
  done
}

# ---------------------------------------------------------------- the state of the cards, from start to end of a job

# 'UUID field value' a line.
state() {
  local uuid field
  for uuid in "${CARDS[@]}"; do
    for field in "${STATE_FIELDS[@]}"; do
      printf '%s %s %s\n' "$uuid" "$field" "$(fact "$uuid" "$field")"
    done
  done
}

# A sentence for everything that is not as the file says; nothing where all is the same.
changes_since() {
  local file=$1 uuid field value now
  local -A before=()
  while read -r uuid field value; do
    before[$uuid/$field]=$value
    if [[ -z ${FACT[$uuid/uuid]:-} ]]; then
      [[ $field == "${STATE_FIELDS[0]}" ]] && say "$(printable "$uuid") is gone."
      continue
    fi
    now=$(fact "$uuid" "$field")
    [[ $now == "$value" ]] ||
      say "$uuid: $(printable "$field") was $(printable "$value") when the job began, and is $(printable "$now")."
  done < "$file"
  for uuid in "${CARDS[@]}"; do
    [[ -n ${before[$uuid/${STATE_FIELDS[0]}]:-} ]] || say "$uuid was not there when the job began."
  done
}

# Where job-started.sh leaves for job-completed.sh what was true at the start.
note_of_job() {
  local runner=${RUNNER_NAME:-unnamed}
  printf '%s' "$STATE/notes/${runner//[^A-Za-z0-9._-]/_}.state"
}

# ---------------------------------------------------------------- quarantine

# Marks the machine: job-started.sh and 'start-ephemeral.sh prepare' refuse while a mark is there. A person removes it.
# Marks are root's: a job could take away what its own user made. A hook leaves a word of its own beside its note, which
# counts as well, and of which 'start-ephemeral.sh finish' makes a mark.
quarantine() {
  local mark folder=$STATE/quarantine name
  name=$(date -u +%Y%m%dT%H%M%SZ)-XXXXXX
  [[ -w $folder ]] || folder=$STATE/notes name=quarantine-$name
  mark=$(mktemp -- "$folder/$name") ||
    fail "$folder cannot be written, and this machine should be in quarantine: $1"
  chmod 644 -- "$mark"
  printf '%s\n' "$1" > "$mark"
}

# Why the machine is in quarantine; nothing where it is not.
quarantine_reason() {
  local marks mark words=''
  [[ -d $STATE/quarantine && -r $STATE/quarantine && -x $STATE/quarantine ]] ||
    fail "$STATE/quarantine is no folder that can be read: install the runner's files anew."
  shopt -s dotglob
  marks=("$STATE/quarantine"/* "$STATE/notes"/quarantine-*)
  shopt -u dotglob
  ((${#marks[@]})) || return 0
  mark=${marks[0]}
  if [[ -f $mark && -r $mark && ! -L $mark ]]; then
    IFS= read -r -n 200 words < "$mark" || true
  fi
  say "This machine is in quarantine (${#marks[@]} in ${mark%/*}): $(printable "${words:-no reason is given}"). Look at the card, then remove $(printable "${mark##*/}")."
}
