#!/bin/sh
# Writes the properties file with Spark's secrets to the path in its argument. The values come from SPARK_AUTH_SECRET and
# CLUSTERLINK_SPARK_TOKEN, or from the files that SPARK_AUTH_SECRET_FILE and CLUSTERLINK_SPARK_TOKEN_FILE name. Only its user can read the
# result. No secret is an argument of a process, which every user of the machine can read: printf and case are built into the shell.
set -eu
umask 077

fail() {
  echo "$1" >&2
  exit 1
}

property() {  # property NAME VARIABLE: prints a line of the properties file
  eval "value=\${$2:-} file=\${$2_FILE:-}"
  if [ -n "$file" ]; then
    value=$(cat "$file") || fail "$2_FILE names $file, which user $(id -u) cannot read. Correct the path, or its owner and mode."
  fi
  [ -n "$value" ] || fail "Spark needs a secret. Set $2 or $2_FILE in .env; .env.example says how to make one."
  case $value in *"
"*) fail "$2 has several lines. Write the secret in one line." ;; esac
  printf '%s=%s\n' "$1" "$(printf '%s' "$value" | sed 's/\\/\\\\/g')"  # \ is an escape in a properties file
}

secret=$(property spark.authenticate.secret SPARK_AUTH_SECRET)
token=$(property spark.connect.authenticate.token CLUSTERLINK_SPARK_TOKEN)
printf '%s\n' spark.authenticate=true "$secret" "$token" >"$1.new"
mv "$1.new" "$1"
