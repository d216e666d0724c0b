# Independent emulators on free loopback ports: moto and ministack for SQS, DynamoDB and more, dynalite
# for DynamoDB alone. Sourced, after tools.sh.
#
# start_emulators exports REQUEUE_TEST_MOTO and REQUEUE_TEST_MINISTACK (endpoint URLs), and the path of
# ministack's log. `start_emulator dynalite` may follow, after http_servers. stop_emulators ends all,
# with every function process that ministack runs.

EMULATORS=()
EMULATOR_FILES=

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# responds PID URL: waits until the process serves HTTP. Fails if it has ended, or after a minute.
responds() {
  local tries
  for ((tries = 0; tries < 600; tries++)); do
    kill -0 "$1" 2>/dev/null || return 1
    python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)' "$2" 2>/dev/null && return
    sleep 0.1
  done
  return 1
}

# The environment of an emulator. Nothing of this shell's, since ministack passes its environment on to
# the functions that it runs.
emulate() {
  env -i PATH="$PATH" HOME="$EMULATOR_FILES" TMPDIR="$EMULATOR_FILES" PYTHONDONTWRITEBYTECODE=1 \
    AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_DEFAULT_REGION=us-east-1 "$@"
}

emulate_moto() {
  emulate "$TOOLS/moto/bin/python" -m moto.server -H 127.0.0.1 -p "$1"
}

emulate_ministack() {
  emulate GATEWAY_PORT="$1" BIND_HOST=127.0.0.1 AWS_ENDPOINT_URL="http://127.0.0.1:$1" LOG_LEVEL=INFO \
    STATE_DIR="$EMULATOR_FILES/state" S3_DATA_DIR="$EMULATOR_FILES/s3" "$TOOLS/ministack/bin/python" -m ministack
}

emulate_dynalite() {
  emulate "$REQUEUE_TEST_NODE" "$TOOLS/dynalite/node_modules/dynalite/cli.js" \
    --host 127.0.0.1 --port "$1" --createTableMs 0 --deleteTableMs 0
}

# start_emulator NAME READY-PATH VARIABLE: tries several ports, since another process may take a free
# one before the emulator does.
start_emulator() {
  local port pid try
  for try in 1 2 3 4 5; do
    port=$(free_port)
    set -m # a process group of its own, so that its children end with it
    "emulate_$1" "$port" >"$EMULATOR_FILES/$1.log" 2>&1 &
    pid=$!
    set +m
    EMULATORS+=("$pid")
    if responds "$pid" "http://127.0.0.1:$port$2"; then
      export "$3=http://127.0.0.1:$port"
      return
    fi
    echo "$1 did not start on port $port (try $try)" >&2
    kill -TERM -- "-$pid" 2>/dev/null || true
  done
  cat "$EMULATOR_FILES/$1.log" >&2
  return 1
}

start_emulators() {
  EMULATOR_FILES=$(mktemp -d)
  start_emulator moto /moto-api/ REQUEUE_TEST_MOTO
  start_emulator ministack /_ministack/health REQUEUE_TEST_MINISTACK
  export REQUEUE_TEST_MINISTACK_LOG=$EMULATOR_FILES/ministack.log
}

stop_emulators() {
  local pid
  for pid in "${EMULATORS[@]}"; do
    kill -TERM -- "-$pid" 2>/dev/null || true
  done
  for pid in "${EMULATORS[@]}"; do
    for _ in {1..50}; do
      kill -0 -- "-$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL -- "-$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  EMULATORS=()
  [[ -z $EMULATOR_FILES ]] || rm -rf "$EMULATOR_FILES"
  EMULATOR_FILES=
}
