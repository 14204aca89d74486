#!/bin/sh
# Starts the master of a Spark standalone cluster. It stores workers and applications in SPARK_RECOVERY_DIR, so that after a restart
# running applications keep their executors. Without that a restarted master refuses them, and copying stops until the Spark
# Connect server is restarted.
set -eu
recovery="-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory=${SPARK_RECOVERY_DIR:-/recovery}"
export SPARK_MASTER_OPTS="$recovery ${SPARK_MASTER_OPTS:-}"
SPARK_CONF_DIR=${SPARK_CONF_DIR:-$(cd "$(dirname "$0")/spark" && pwd)}
export SPARK_CONF_DIR
secrets=$("$(dirname "$0")/spark-secrets.sh" spark.authenticate.secret)
exec spark-class org.apache.spark.deploy.master.Master --properties-file "$secrets" --host "${SPARK_MASTER_HOST:-spark-master}" --port "${SPARK_MASTER_PORT:-7077}"
