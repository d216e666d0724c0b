# Python tools in virtual environments, one for each `requirements-*.txt`: they pin versions that exclude each other.
# Sourced. Cached in target/tools (or $REQUEUE_TOOLS); made anew only when the requirements change.

TOOLS=${REQUEUE_TOOLS:-$PWD/target/tools}

# tool NAME: make sure that $TOOLS/NAME holds exactly tests/requirements-NAME.txt.
tool() {
  local home=$TOOLS/$1 requirements=tests/requirements-$1.txt
  # The scripts in a virtual environment name its path, so a moved one is no longer good.
  local stamp
  stamp="$home $(python3 --version)
$(cat "$requirements")"
  [[ -f $home/stamp && $(cat "$home/stamp") == "$stamp" ]] && return
  echo "installing $1 into $home"
  rm -rf "$home"
  python3 -m venv "$home" &&
    "$home/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --requirement "$requirements" &&
    printf '%s\n' "$stamp" >"$home/stamp"
}

# tools NAME…: several at the same time.
tools() {
  local name pid pids=()
  for name in "$@"; do
    tool "$name" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || return 1
  done
}
