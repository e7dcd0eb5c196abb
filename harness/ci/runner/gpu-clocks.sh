#!/bin/bash
# gpu-clocks.sh apply|reset: sets the cards' clocks, power limit, persistence and compute mode to what the
# configuration says, or puts what it says back to the driver's defaults. Root runs it, outside of every job
# (gpu-clocks.service); the harness itself never changes a card's settings.
#
# The default is to set nothing. Comparisons are paired and count the SM's own cycles, so they need no lock. A lock
# makes a history over months steadier. GeForce: -lgc works from Volta on; -lmc is there from Ampere on, but on
# GeForce Blackwell it slows the card and is refused here.

# shellcheck source-path=SCRIPTDIR source=lib.sh
. "${BASH_SOURCE[0]%/*}/lib.sh"

# nvidia-smi takes a setting that a card does not have for a warning, and exits with 0.
set_card() {
  local uuid=$1 what=$2 answer
  shift 2
  answer=$(smi -i "$uuid" "$@" 2>&1) || fail "$what of $uuid cannot be set: $(printable "${answer%%$'\n'*}")"
  [[ ! $answer =~ not\ supported|Treating\ as\ warning ]] ||
    fail "$uuid does not let its $what be set: $(printable "${answer%%$'\n'*}")"
  say "$uuid: ${answer%%$'\n'*}"
}

# The kernel's module and the device files, which a job cannot make: nvidia-modprobe is set-user-ID, and a unit with
# NoNewPrivileges does not honour that. nvidia-smi as root makes all but those of unified memory.
make_devices() {
  if command -v nvidia-modprobe > /dev/null; then
    nvidia-modprobe -u || say 'nvidia-modprobe -u failed: CUDA programs may find no /dev/nvidia-uvm.'
  fi
}

# GB202's memory lock lowers other clocks too, by as much as a third of the performance, even where it is above the
# clock that the card has anyway: https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1266
refuse_memory_lock() {
  local uuid=$1 capability
  capability=$(fact "$uuid" compute_cap)
  if [[ $(fact "$uuid" name) == *GeForce* && $capability =~ ^[0-9]+\. ]] && ((${capability%%.*} >= 12)); then
    fail "$uuid is a GeForce Blackwell card, which a memory lock slows: set memory_clock_mhz = keep."
  fi
}

# Runs a command where a setting of the configuration is not 'keep'.
unless_kept() {
  local key=$1
  shift
  [[ ${SETTING[$key]} == keep ]] || "$@"
}

apply_card() {
  local uuid=$1
  unless_kept persistence set_card "$uuid" 'persistence mode' -pm 1
  unless_kept power_limit_w set_card "$uuid" 'power limit' -pl "${SETTING[power_limit_w]}"
  unless_kept sm_clock_mhz set_card "$uuid" 'SM clock' -lgc "$(range "${SETTING[sm_clock_mhz]}")"
  unless_kept memory_clock_mhz refuse_memory_lock "$uuid"
  unless_kept memory_clock_mhz set_card "$uuid" 'memory clock' -lmc "$(range "${SETTING[memory_clock_mhz]}")"
  unless_kept compute_mode set_card "$uuid" 'compute mode' -c "${SETTING[compute_mode]^^}"
}

# MHZ or MIN-MAX as nvidia-smi takes it.
range() {
  printf '%s,%s' "${1%-*}" "${1#*-}"
}

apply() {
  local uuid wrong file
  make_devices
  read_cards
  for uuid in "${CARDS[@]}"; do
    apply_card "$uuid"
  done
  read_cards
  wrong=$(policy_faults)
  [[ -z $wrong ]] || fail "What was set does not hold: ${wrong//$'\n'/ }"
  for uuid in "${CARDS[@]}"; do
    if ! unchanged_by_default && [[ $(fact "$uuid" persistence_mode) != Enabled ]]; then
      fail "$uuid is not in persistence mode, so its driver forgets what was set when the last process leaves: set persistence = on, or start nvidia-persistenced."
    fi
  done
  mkdir -p -- "$RUN"
  file=$(mktemp -- "$RUN/clocks-XXXXXX")
  chmod 644 -- "$file"
  printf '%s\n' "$(< /proc/sys/kernel/random/boot_id)" "$(policy)" "${CARDS[*]}" > "$file"
  mv -- "$file" "$RUN/clocks" # whole or not at all
  say "Set on ${#CARDS[@]} card(s): $(policy)"
}

unchanged_by_default() {
  ! clocks_are_locked && [[ ${SETTING[power_limit_w]} == keep ]]
}

reset_power_limit() {
  local uuid=$1 limit
  limit=$(smi -i "$uuid" --query-gpu=power.default_limit --format=csv,noheader,nounits)
  set_card "$uuid" 'power limit' -pl "$(watts "$limit")"
}

reset() {
  local uuid
  read_cards
  rm -f -- "$RUN/clocks"
  for uuid in "${CARDS[@]}"; do
    unless_kept sm_clock_mhz set_card "$uuid" 'SM clock' -rgc
    unless_kept memory_clock_mhz set_card "$uuid" 'memory clock' -rmc
    unless_kept power_limit_w reset_power_limit "$uuid"
    unless_kept compute_mode set_card "$uuid" 'compute mode' -c DEFAULT
  done
}

[[ $EUID == "$OWNER" ]] || fail "gpu-clocks.sh is for user $OWNER: changing a card's settings needs root."
read_config
case ${1:-} in
  apply) apply ;;
  reset) reset ;;
  *) fail 'usage: gpu-clocks.sh apply|reset' ;;
esac
