#!/bin/bash
# Before each job: may it run on this machine, and is the card fit for it? Set ACTIONS_RUNNER_HOOK_JOB_STARTED to this
# file's path. Runs as the runner's user and changes nothing but a note. A sentence and exit status 1 refuse the job.
#
# It is the second lock. The first is at GitHub: workflows, environments, who may push (docs/runners.md).
# GITHUB_* come from GitHub through the runner: a workflow's env: does not reach a hook (JobHookProvider.cs gives it an
# empty environment, and ScriptHandler.cs adds the contexts).

# shellcheck source-path=SCRIPTDIR source=lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

# A hook that fails does not stop the job: its steps with `if: always()` still run
# (https://github.com/actions/runner/issues/2811), and a hostile workflow has only such steps. So the process that
# runs steps is ended. What it last wrote to its standard error becomes the message of the failed job.
stop_worker() {
  local name=''
  read -r name 2> /dev/null < "/proc/$PPID/comm" || true
  if [[ $name != Runner.Worker ]]; then
    say "The parent process is no Runner.Worker: steps with 'if: always()' cannot be kept from running."
    return
  fi
  printf 'Refused by job-started.sh of this runner: %s\n' "$1" 2> /dev/null > "/proc/$PPID/fd/2" || true
  sleep 2 # for the lines above to reach GitHub
  kill -KILL "$PPID"
}

fail() {
  say "::error title=Refused by the GPU runner::$1" >&2 # not to standard output: callers capture that
  if [[ -n ${note:-} ]]; then
    say refused > "$note" 2> /dev/null || true
  fi
  stop_worker "$1"
  exit 1
}

note=$(note_of_job)

refuse_whom() {
  local event=${GITHUB_EVENT_NAME:-} ref=${GITHUB_REF:-} from=${GITHUB_REPOSITORY:-} workflow path
  [[ ${from,,} == "${SETTING[repository],,}" ]] ||
    fail "This runner is for ${SETTING[repository]}; the job is of '$(printable "$from")'."
  [[ " ${SETTING[events]} " == *" $event "* && $event != *' '* && -n $event ]] ||
    fail "Jobs of the event '$(printable "$event")' do not run here; these do: ${SETTING[events]}. A pull request is measured by a comment '/perf SHA' of somebody who may write."
  if [[ $event == push && ${SETTING[mirror_branches]} == yes && $ref =~ ^refs/heads/pull-request/[1-9][0-9]{0,8}$ ]]; then
    local protected=${GITHUB_REF_PROTECTED:-false}
    [[ ${SETTING[protected_mirror]} == no || ${protected,,} == true ]] ||
      fail "$(printable "$ref") is not protected: everybody who may push could run code here. Add a rule for pull-request/* in the repository's settings, or set protected_mirror = no."
  elif [[ $event == workflow_dispatch && $ref == refs/heads/perf-dispatch ]]; then
    : # where 'harness ci request' starts measurements of pull requests
  elif [[ $ref != "refs/heads/${SETTING[default_branch]}" ]]; then
    fail "Jobs of $(printable "${ref:-no branch}") by $event do not run here; those of ${SETTING[default_branch]} do."
  elif [[ ${GITHUB_WORKFLOW_REF:-} == */perf-pr.yml@* ]]; then
    fail "A pull request is not measured on ${SETTING[default_branch]}, where its job could write caches that others restore: comment '/perf SHA'."
  fi
  [[ -n ${SETTING[workflows]} ]] || return 0
  workflow=${GITHUB_WORKFLOW_REF:-}
  path=${workflow%%@*}
  [[ ${path,,} == "${SETTING[repository],,}/"* && " ${SETTING[workflows]} " == *" ${path#*/*/} "* ]] ||
    fail "The workflow '$(printable "$workflow")' does not run here; these do: ${SETTING[workflows]}."
}

refuse_card() {
  local wrong running pid name who=''
  wrong=$(faults)
  [[ -z $wrong ]] || fail "${wrong//$'\n'/ }"
  running=$(processes) || fail 'nvidia-smi does not list the processes on the card.'
  if [[ -n $running ]]; then
    while read -r pid name; do
      who+=" $pid ($name, of $(stat -c %U -- "/proc/$pid" 2> /dev/null || say 'another user'));"
    done <<< "$running"
    fail "The card is not free:${who%;}. Their work slows what is timed: end them."
  fi
}

refuse_policy() {
  local wrong boot applied listed uuid clocks=$RUN/clocks
  wrong=$(policy_faults)
  [[ -z $wrong ]] || fail "${wrong//$'\n'/ } Start gpu-clocks.service again, and find out who changed it."
  clocks_are_locked || return 0
  # No query tells a lock. What can be known is that root set it since the last boot, and that the driver has been
  # loaded ever since.
  require_trusted "$clocks" 022
  { read -r boot && read -r applied && read -r listed; } < "$clocks" || fail "$clocks is not what gpu-clocks.sh writes."
  [[ $boot == "$(< /proc/sys/kernel/random/boot_id)" && $applied == "$(policy)" ]] ||
    fail "Clocks are to be locked ($(policy)), and gpu-clocks.service has not done that since the last boot."
  for uuid in "${CARDS[@]}"; do
    [[ " $listed " == *" $uuid "* ]] || fail "$uuid is to have locked clocks, and gpu-clocks.service has not seen it."
    [[ $(fact "$uuid" persistence_mode) == Enabled ]] ||
      fail "$uuid is not in persistence mode: its driver forgets locked clocks whenever the last process leaves."
  done
}

read_config
held=$(quarantine_reason) || exit 1
[[ -z $held ]] || fail "$held"
refuse_whom
read_cards
refuse_card
refuse_policy
state > "$note" || fail "$note cannot be written."
say "The card is free and as configured:"
state
