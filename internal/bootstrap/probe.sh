#!/bin/sh
# Exit 0: bootstrap complete. 10: failed. 11: still running after WAIT seconds.
set -u
WAIT=0
SENTINEL=/var/lib/zopday/bootstrap-complete
FAILED=/var/lib/zopday/bootstrap-failed
RUN=/run/zopday
LOG=/var/log/zopday-bootstrap.log
export LC_ALL=C PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Printable text only, with what looks like a secret masked.
clean() {
	tr -cd '\11\12\40-\176' | sed -E \
		-e 's/(AKIA|ASIA)[A-Z0-9]{16}/***/g' \
		-e 's#(://[^/:@ ]*:)[^@ ]+@#\1***@#g' \
		-e 's/(([Pp]assword|PASSWORD|[Ss]ecret|SECRET|[Tt]oken|TOKEN)[A-Za-z_]*[=:] *)[^ ]+/\1***/g'
}

# failed prints why and ends, unless the bootstrap got there between two looks.
failed() {
	[ ! -e "$SENTINEL" ] || ready
	echo "bootstrap failed: $1" | clean | head -c 300
	echo
	for log in "$LOG" /var/log/cloud-init-output.log; do
		[ -s "$log" ] || continue
		echo "--- end of $log"
		tail -n 40 "$log" | clean | tail -c 1900
		break
	done
	exit 10
}

# A run holds the lock until it ends, however it ends.
running() {
	[ -e "$RUN/lock" ] && ! flock -n -s "$RUN/lock" true
}

# cloud_init sets ci to the code of "cloud-init status" and state to its word. The code alone is
# not enough: 2 (recoverable warnings) is also what a run that still goes on may answer, and 1
# comes from an early stage while the last one has yet to run.
cloud_init() {
	ci=0
	state=unknown
	out=$(cloud-init status --long 2>/dev/null) || ci=$?
	[ "$ci" -ne 127 ] || return 0
	state=$(echo "$out" | sed -n 's/^status: *//p' | head -n 1)
	case $(echo "$out" | sed -n 's/^extended_status: *//p') in
	*running*) state=running ;;
	esac
	# Releases without an extended status say "error" early; the last stage leaves this file.
	if [ "$state" = error ] && [ ! -e /run/cloud-init/result.json ]; then state=running; fi
}

ready() {
	cloud_init
	if [ "$ci" -eq 0 ] || [ "$state" = running ]; then
		echo "bootstrap complete"
	else
		echo "bootstrap complete; warning: cloud-init status is $state (exit $ci)"
	fi
	exit 0
}

end=$(($(date +%s) + WAIT))
while :; do
	[ ! -e "$SENTINEL" ] || ready
	if ! running; then
		if [ -e "$FAILED" ]; then
			failed "$(tr '\n' ' ' <"$FAILED")"
		fi
		cloud_init
		case $state in
		done) failed "cloud-init is done (exit $ci), but the bootstrap left no result" ;;
		error) failed "cloud-init ended in error (exit $ci) before the bootstrap had a result" ;;
		disabled) failed "cloud-init is disabled in this image" ;;
		esac
	fi
	[ "$(date +%s)" -lt "$end" ] || break
	sleep 1
done
echo "bootstrap running: step $(cat "$RUN/step" 2>/dev/null || echo 'not started')"
exit 11
