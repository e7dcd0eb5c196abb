#!/bin/bash
# After each job: ends what it left on the card, and looks whether the card is as it was. Set
# ACTIONS_RUNNER_HOOK_JOB_COMPLETED to this file's path. Runs as the runner's user; needs no root.
#
# It tells the job's author what went wrong. It is no defence: the job ran as the same user, can rewrite the note, and
# can even put a bash of its own before this one (the runner looks bash up in what the job added to GITHUB_PATH:
# JobHookProvider.cs). What a hostile job changed is found by 'start-ephemeral.sh finish', which root runs.

# shellcheck source-path=SCRIPTDIR source=lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

fail() {
  say "::error title=GPU runner::$1" >&2 # not to standard output: callers capture that
  exit 1
}

note=$(note_of_job)

# Those of ours that have a context on the card. In a container the driver lists the host's process ids, which are
# nobody's in here: nothing is ended then.
strays() {
  local pid name found
  found=$(processes) || fail 'nvidia-smi does not list the processes on the card.'
  while read -r pid name; do
    if [[ -n $pid && $(stat -c %u -- "/proc/$pid" 2> /dev/null || true) == "$EUID" ]]; then
      say "$pid $name"
    fi
  done <<< "$found"
}

end_strays() {
  local left pid name tries
  for tries in 1 2 3 4 5 6 7 8 9 10; do
    left=$(strays) || exit 1
    [[ -n $left ]] || return 0
    while read -r pid name; do
      [[ $tries != 1 ]] || say "::warning title=GPU runner::The job left process $pid ($name) on the card: it is ended."
      kill -KILL "$pid" 2> /dev/null || true
    done <<< "$left"
    sleep 1
  done
  quarantine "Processes of a job cannot be ended: ${left//$'\n'/, }"
  fail "The job left processes on the card that cannot be ended: ${left//$'\n'/, }. This machine takes no more jobs."
}

read_config
first=''
if [[ -f $note && ! -L $note ]]; then
  IFS= read -r first < "$note" || true
fi
if [[ $first == refused ]]; then
  rm -f -- "$note"
  say 'The job was refused: there is nothing to look at.'
  exit 0
fi
end_strays
read_cards
say 'The card after the job:'
state
if [[ -z $first ]]; then
  quarantine 'The note of a job that job-started.sh let begin is gone.'
  fail "$note is gone, so nobody can tell what the job changed. This machine takes no more jobs."
fi
wrong=$(changes_since "$note" && faults)
rm -f -- "$note"
[[ -z $wrong ]] && exit 0
quarantine "After ${GITHUB_REPOSITORY:-a job} run ${GITHUB_RUN_ID:-unknown}: ${wrong//$'\n'/ }"
fail "${wrong//$'\n'/ } This machine takes no more jobs."
