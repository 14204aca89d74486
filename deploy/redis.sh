#!/bin/sh
# Starts Redis with a password from REDIS_PASSWORD or from the file that REDIS_PASSWORD_FILE names. The password goes into a
# configuration file that only Redis can read, never into a process argument, which every user of the machine can read.
# Arguments are passed on to redis-server.
set -eu
password=${REDIS_PASSWORD:-}
[ -z "${REDIS_PASSWORD_FILE:-}" ] || password=$(cat "$REDIS_PASSWORD_FILE")
if [ -z "$password" ]; then
  echo "Redis needs a password. Set REDIS_PASSWORD or REDIS_PASSWORD_FILE in .env." >&2
  exit 1
fi
umask 077
config=$(mktemp)
{
  printf 'requirepass "%s"\n' "$(printf '%s' "$password" | sed 's/[\\"]/\\&/g')"
  echo "appendonly yes"
  echo "maxmemory ${REDIS_MAXMEMORY:-384mb}"
  echo "maxmemory-policy noeviction"  # an evicted lease or order would be lost; refused writes are retried
} >"$config"
unset REDIS_PASSWORD
if [ "$(id -u)" = 0 ] && command -v docker-entrypoint.sh >/dev/null; then
  chown redis "$config"
  exec docker-entrypoint.sh redis-server "$config" "$@"  # continues as the user redis
fi
exec redis-server "$config" "$@"
