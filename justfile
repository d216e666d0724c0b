# Short names for the commands of the project. `tests/run` is the one that must pass.

# Tests that need only Rust.
test *ARGS:
    cargo test --locked {{ARGS}}

# Formatting, clippy, dependencies.
lint:
    tests/run format lints dependencies

docs:
    tests/run docs

# Compares Requeue with Lambdas that do less.
bench:
    benches/compare

# Fuzz targets, a minute each.
fuzz *ARGS:
    tests/fuzz {{ARGS}}

# Everything.
all:
    tests/run
