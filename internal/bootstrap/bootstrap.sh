#!/bin/sh
# ZopDay bootstrap: Docker, the nginx-on-zop-net bridge, NGINX on it and, last, the
# sentinel. It runs on every boot; whatever is already as it should be is left alone.
set -eu

CONF=/etc/zopday/bootstrap.conf
EXTRA=/usr/local/lib/zopday/extra
REPORT=/usr/local/lib/zopday/report
NGINX_DIR=/etc/zopday/nginx
STATE=/var/lib/zopday
SENTINEL=/var/lib/zopday/bootstrap-complete
FAILED=/var/lib/zopday/bootstrap-failed
RUN=/run/zopday
LOG=/var/log/zopday-bootstrap.log
NETWORK=nginx-on-zop-net
CONTAINER=zop-nginx

# Limits in seconds, and the number of tries. The environment may override them.
: "${ZOP_DEADLINE:=1800}" # the whole run
: "${ZOP_LOCK_WAIT:=600}" # for whoever else holds the package lock
: "${ZOP_FETCH:=60}"      # one small download
: "${ZOP_WORK:=900}"      # one install or image pull
: "${ZOP_QUICK:=60}"      # one local command
: "${ZOP_TRIES:=5}"
: "${ZOP_PAUSE:=5}" # after the first failed try; twice that after the second, and so on

step=start
reason=

now() { date +%s; }
say() { echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) $*"; }

begin() {
	step=$1
	echo "$step" >"$RUN/step"
	say "step $step"
	report running "$step"
}

# report STATE...: tells the cloud where it is told this way. That it could not changes nothing.
report() {
	[ "${CLOUD:-}" = gcp ] || return 0
	timeout -k 5 30 "$REPORT" "$@" </dev/null 3>&- 9>&- || say "report $1: exit $?"
}

die() {
	reason=$*
	say "error: $reason"
	exit 1
}

# finish runs at every end, so that no failure is silent: the sentinel is taken back and the
# step and exit code are left where the probe looks.
finish() {
	code=$1
	trap - EXIT
	[ "$code" -ne 0 ] || exit 0
	rm -f "$SENTINEL"
	{
		echo "step=$step"
		echo "exit=$code"
		echo "reason=$reason"
		echo "at=$(date -u +%Y-%m-%dT%H:%M:%SZ)"
	} >"$FAILED.new"
	mv -f "$FAILED.new" "$FAILED"
	say "failed: step $step, exit $code"
	report failed "step $step, exit $code${reason:+, $reason}"
	echo "zopday bootstrap failed: step $step, exit $code${reason:+, $reason} (log: $LOG)" >&3
	exit "$code"
}

# bounded LIMIT COMMAND...: ends the command after LIMIT seconds, or when the whole run is out
# of time. Without a route a fetch does not fail, it hangs.
bounded() {
	limit=$1
	shift
	left=$((deadline - $(now)))
	[ "$left" -gt 0 ] || die "out of time: the whole run has $ZOP_DEADLINE s"
	[ "$limit" -le "$left" ] || limit=$left
	timeout -k 10 "$limit" "$@" </dev/null 3>&- 9>&-
}

# retry LIMIT COMMAND...: bounded, tried ZOP_TRIES times with a growing pause.
retry() {
	try=1
	while :; do
		rc=0
		bounded "$@" || rc=$?
		[ "$rc" -ne 0 ] || return 0
		say "try $try of $ZOP_TRIES: exit $rc: $*"
		[ "$try" -lt "$ZOP_TRIES" ] || return "$rc"
		sleep $((try * ZOP_PAUSE))
		try=$((try + 1))
	done
}

# await LIMIT COMMAND...: repeats a quick check until it holds.
await() {
	until=$(($(now) + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$(now)" -lt "$until" ] || return 1
		sleep 1
	done
}

# apt ARGS...: apt-get, patient with others. The daily update job and the OS Config agent run apt
# at boot. DPkg::Lock::Timeout waits for dpkg's lock alone; the list lock fails at once, so it is
# waited for here and spends no try.
apt() {
	patience=$(($(now) + ZOP_LOCK_WAIT))
	try=1
	while :; do
		if [ -n "$(dpkg --audit)" ]; then # a run cut short left packages half configured
			bounded "$ZOP_WORK" dpkg --configure -a || say "dpkg --configure -a: exit $?"
		fi
		rc=0
		bounded "$((ZOP_WORK + ZOP_LOCK_WAIT))" apt-get -q -y \
			-o DPkg::Lock::Timeout="$ZOP_LOCK_WAIT" -o Dpkg::Options::=--force-confold \
			-o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 \
			"$@" >"$RUN/apt.out" 2>&1 || rc=$?
		cat "$RUN/apt.out"
		[ "$rc" -ne 0 ] || return 0
		if grep -Eq 'Could not get lock|Unable to (acquire|lock)' "$RUN/apt.out"; then
			if [ "$(now)" -ge "$patience" ]; then
				reason="package lock still held after $ZOP_LOCK_WAIT s"
				return "$rc"
			fi
			sleep "$ZOP_PAUSE"
			continue
		fi
		say "try $try of $ZOP_TRIES: exit $rc: apt-get $*"
		[ "$try" -lt "$ZOP_TRIES" ] || return "$rc"
		sleep $((try * ZOP_PAUSE))
		try=$((try + 1))
	done
}

# dnf waits for its own lock; the limit ends that wait.
dnf_install() { retry "$ZOP_WORK" dnf -y -q --setopt=timeout=30 --setopt=retries=3 install "$@"; }

ssm_active() {
	systemctl is-active --quiet amazon-ssm-agent ||
		systemctl is-active --quiet snap.amazon-ssm-agent.amazon-ssm-agent
}

# The agent comes first: it is how a failure of the rest can be looked into.
ssm_agent() {
	if ssm_active; then return 0; fi
	case $ID in
	amzn)
		dnf_install amazon-ssm-agent
		retry "$ZOP_QUICK" systemctl enable --now amazon-ssm-agent
		;;
	*)
		# Images up to Ubuntu 25.04 have it as a snap; later ones are not listed by the vendor.
		command -v snap >/dev/null || die "no snap here: the SSM agent on Ubuntu is a snap"
		retry "$ZOP_WORK" snap wait system seed.loaded
		if ! bounded "$ZOP_QUICK" snap list amazon-ssm-agent >/dev/null 2>&1; then
			retry "$ZOP_WORK" snap install amazon-ssm-agent --classic
		fi
		retry "$ZOP_QUICK" snap start --enable amazon-ssm-agent
		;;
	esac
	await "$ZOP_QUICK" ssm_active || die "the SSM agent is installed but does not run"
}

docker_installed() {
	command -v docker >/dev/null && command -v dockerd >/dev/null || return 1
	[ "$ID" = amzn ] || [ -z "$(dpkg --audit)" ]
}

docker_install() {
	if docker_installed; then return 0; fi
	if [ "$ID" = amzn ]; then
		dnf_install docker
		return 0
	fi
	if ! command -v curl >/dev/null; then
		apt update
		apt install ca-certificates curl
	fi
	mkdir -p /etc/apt/keyrings
	retry "$ZOP_FETCH" curl -fsSL --connect-timeout 10 --max-time "$ZOP_FETCH" \
		-o "$RUN/docker.asc" "$DOCKER_REPO/$ID/gpg"
	grep -q 'BEGIN PGP PUBLIC KEY BLOCK' "$RUN/docker.asc" || die "$DOCKER_REPO/$ID/gpg is no key"
	install -m 0644 "$RUN/docker.asc" /etc/apt/keyrings/docker.asc
	arch=$(dpkg --print-architecture)
	cat >/etc/apt/sources.list.d/docker.sources <<-END
		Types: deb
		URIs: $DOCKER_REPO/$ID
		Suites: ${UBUNTU_CODENAME:-$VERSION_CODENAME}
		Components: stable
		Architectures: $arch
		Signed-By: /etc/apt/keyrings/docker.asc
	END
	apt update
	apt install docker-ce docker-ce-cli containerd.io docker-buildx-plugin docker-compose-plugin
}

docker_start() {
	if ! systemctl is-enabled --quiet docker || ! systemctl is-active --quiet docker; then
		retry "$ZOP_QUICK" systemctl enable --now docker
	fi
	await "$ZOP_QUICK" bounded "$ZOP_QUICK" docker info || die "the Docker daemon does not answer"
}

docker_network() {
	if bounded "$ZOP_QUICK" docker network inspect "$NETWORK" >/dev/null 2>&1; then return 0; fi
	retry "$ZOP_QUICK" docker network create --driver bridge "$NETWORK"
}

nginx_pull() {
	if bounded "$ZOP_QUICK" docker image inspect "$NGINX_IMAGE" >/dev/null 2>&1; then return 0; fi
	retry "$ZOP_WORK" docker pull -q "$NGINX_IMAGE"
}

nginx_run() {
	running=$(bounded "$ZOP_QUICK" docker inspect -f '{{.State.Running}}' "$CONTAINER" 2>/dev/null || :)
	if [ "$running" = true ]; then return 0; fi
	if [ -n "$running" ]; then
		if bounded "$ZOP_QUICK" docker start "$CONTAINER"; then return 0; fi
		# A run that failed after its create leaves a container that only holds the name.
		retry "$ZOP_QUICK" docker rm -f "$CONTAINER"
	fi
	bounded "$ZOP_QUICK" docker run -d --name "$CONTAINER" --network "$NETWORK" \
		--restart unless-stopped -p 80:80 \
		--log-opt max-size=10m --log-opt max-file=3 \
		-v "$NGINX_DIR/conf.d:/etc/nginx/conf.d:ro" \
		-v "$NGINX_DIR/routes.d:/etc/nginx/routes.d:ro" \
		"$NGINX_IMAGE"
}

nginx_health() {
	await "$ZOP_QUICK" bounded 10 curl -fsS --max-time 5 -o /dev/null http://127.0.0.1/healthz ||
		die "NGINX does not answer 200 on /healthz"
}

# The user's own script has no promise to be repeatable, so one that worked is not run again.
extra() {
	[ -f "$EXTRA" ] || return 0
	sum=$(sha256sum <"$EXTRA")
	if [ -f "$STATE/extra-done" ] && [ "$(cat "$STATE/extra-done")" = "$sum" ]; then return 0; fi
	bounded "$ZOP_WORK" "$EXTRA"
	echo "$sum" >"$STATE/extra-done"
}

sentinel() {
	rm -f "$FAILED"
	[ ! -f "$SENTINEL" ] || return 0
	echo "completed=$(date -u +%Y-%m-%dT%H:%M:%SZ) mode=$MODE" >"$SENTINEL.new"
	mv -f "$SENTINEL.new" "$SENTINEL"
}

export LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
export PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/snap/bin"
umask 022
mkdir -p "$STATE" "$RUN"
touch "$LOG"
chmod 0600 "$LOG"
exec 3>&1 9>"$RUN/lock" >>"$LOG" 2>&1
flock -w "$ZOP_DEADLINE" 9 || {
	echo "zopday bootstrap: another run holds $RUN/lock" >&3
	exit 75
}
deadline=$(($(now) + ZOP_DEADLINE))
trap 'finish $?' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

begin preflight
# shellcheck source=/dev/null
. "$CONF"
# Azure makes no VM without a key or a password. The key's other half was thrown away; this
# half goes too, on the first boot, so that no key is authorized.
if [ "$CLOUD" = azure ] && [ ! -e "$STATE/key-removed" ]; then
	rm -f /home/zopday/.ssh/authorized_keys /root/.ssh/authorized_keys
	: >"$STATE/key-removed"
fi
# shellcheck source=/dev/null
. /etc/os-release
[ "$ID" = "$OS_ID" ] || die "the image is $ID, the job asks for $OS_ID"

if [ "$CLOUD" = aws ]; then
	begin ssm-agent
	ssm_agent
fi
begin docker-install
docker_install
begin docker-start
docker_start
begin docker-network
docker_network
if [ "$MODE" = docker_nginx ]; then
	begin nginx-pull
	nginx_pull
	begin nginx-run
	nginx_run
	begin nginx-health
	nginx_health
fi
begin extra
extra
begin sentinel
sentinel
begin complete
report complete
echo "zopday bootstrap complete" >&3
