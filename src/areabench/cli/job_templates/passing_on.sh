# Runs a command, and passes on the signal that comes before the walltime ends: a shell handles a signal only when its
# command has ended, unless it waits for one in the background.
passing_on() {
  local process="" warned="" status=0
  trap 'warned=yes; kill -USR1 $process 2>/dev/null || true' USR1
  "$@" &
  process=$!
  [ -z "$warned" ] || kill -USR1 "$process"  # it came before there was anything to pass it on to
  wait "$process" || status=$?  # a signal ends the waiting
  while kill -0 "$process" 2>/dev/null; do wait "$process" || true; done
  ((status < 128)) || { status=0; wait "$process" || status=$?; }
  return "$status"
}
