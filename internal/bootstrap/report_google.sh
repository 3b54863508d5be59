#!/bin/sh
# Publishes how far the bootstrap is as guest attributes of this Compute Engine VM, in the
# namespace "zopday", where the provisioner reads it. $1 is running, failed or complete; the rest
# is for people.
set -u
URL=http://metadata.google.internal/computeMetadata/v1/instance/guest-attributes/zopday
LOG=/var/log/zopday-bootstrap.log

put() {
	curl -fsS --connect-timeout 2 --max-time 5 -X PUT --data-binary @- -H 'Metadata-Flavor: Google' "$URL/$1"
}

# Printable text only, with what looks like a secret masked.
clean() {
	tr -cd '\11\12\40-\176' | sed -E \
		-e 's#(://[^/:@ ]*:)[^@ ]+@#\1***@#g' \
		-e 's/(([Pp]assword|PASSWORD|[Ss]ecret|SECRET|[Tt]oken|TOKEN)[A-Za-z_]*[=:] *)[^ ]+/\1***/g'
}

command -v curl >/dev/null || exit 0
# The log first: whoever reads of the failure finds it.
if [ "$1" = failed ]; then
	tail -n 40 "$LOG" | clean | tail -c 1900 | put bootstrap-log
fi
echo "$*" | clean | head -c 300 | put bootstrap
