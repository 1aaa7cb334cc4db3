#!/usr/bin/env bash
# Makes the images peerloom-registry, -selector, -trainer and -node; what exists already isn't made again.
#
#   deploy/build.sh            all of it          deploy/build.sh base      the base image alone
#   deploy/build.sh wheels     the wheels alone   deploy/build.sh images    the images, from what is there
#
# Settings, from the environment:
#   BASE    an image with Python in it (then nothing is bootstrapped); default: peerloom-base:bookworm, made here
#           from Debian's packages by debootstrap, which needs root
#   MIRROR  where debootstrap finds Debian; default: its own
#   PYTHON  the Python whose pip collects the wheels, of the base image's version; default: .venv/bin/python
#   TAG     the images' tag; default: latest
# pip's own settings (PIP_INDEX_URL, PIP_FIND_LINKS, ...) hold: they decide which build of torch is taken.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
BASE=${BASE:-peerloom-base:bookworm}
PYTHON=${PYTHON:-$root/.venv/bin/python}
TAG=${TAG:-latest}
wheels=$here/wheels
scratch=
trap 'test -z "$scratch" || rm -rf "$scratch"' EXIT

fail() {
  echo "build.sh: $*" >&2
  exit 1
}

has_image() {
  docker image inspect "$1" > /dev/null 2>&1
}

make_base() {
  if has_image "$BASE"; then
    return
  fi
  test "$BASE" = peerloom-base:bookworm || fail "there is no image $BASE here. Pull it first."
  test "$(id -u)" = 0 || fail "debootstrap needs root: run this as root, or give an image: BASE=python:3.11-slim $0"
  command -v debootstrap > /dev/null || fail "debootstrap is missing: apt-get install debootstrap"
  echo "making $BASE with debootstrap (a minute)"
  scratch=$(mktemp -d)
  debootstrap --variant=minbase --include=python3 bookworm "$scratch/base" ${MIRROR:+"$MIRROR"} > "$scratch/log" \
    || { tail -n 20 "$scratch/log" >&2; fail "debootstrap failed; its last lines stand above"; }
  rm -rf "$scratch"/base/var/cache/apt/* "$scratch"/base/var/lib/apt/lists/* "$scratch"/base/var/log/* \
    "$scratch"/base/usr/share/{doc,man,info,locale}/*
  tar -C "$scratch/base" --one-file-system --exclude=./dev -c . | docker import - "$BASE" > /dev/null
  rm -rf "$scratch"
}

# The exact versions of constraints.txt for what pyproject.toml asks for, with the named extra or without one.
pins() {
  "$PYTHON" - "$root" "$@" << 'PINS'
import pathlib, re, sys, tomllib

root = pathlib.Path(sys.argv[1])
project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
wanted = list(project["dependencies"])
for extra in sys.argv[2:]:
    wanted += project["optional-dependencies"][extra]
plain = lambda text: re.sub(r"[-_.]+", "-", text).lower()
pinned = [line for line in (root / "constraints.txt").read_text().split() if "==" in line]
versions = {plain(line.partition("==")[0]): line for line in pinned}
for name, parts in (re.match(r"([\w.-]+)(\[.+?\])?", each).groups("") for each in wanted):
    print(versions[plain(name)].replace("==", f"{parts}=="))
PINS
}

collect() {
  local folder=$1
  shift
  mkdir -p "$folder"
  "$PYTHON" -m pip wheel --quiet --disable-pip-version-check -c "$root/constraints.txt" -w "$folder" "$@"
}

collect_packages() {
  local state fresh=$wheels.new
  state=$(cat "$root/constraints.txt" "$root/pyproject.toml" "$0" <("$PYTHON" --version) | sha256sum)
  if test "$(cat "$wheels/state" 2> /dev/null)" = "$state"; then
    return
  fi
  echo "collecting the wheels"
  rm -rf "$fresh" "$wheels"
  collect "$fresh/pip" "pip==$("$PYTHON" -c 'import pip; print(pip.__version__)')"
  # shellcheck disable=SC2046 # a word for each package
  collect "$fresh/packages" $(pins postgresql metrics object-store)
  # shellcheck disable=SC2046
  collect "$fresh/torch" $(pins train) --find-links "$fresh/packages"
  (cd "$fresh/packages" && ls) | (cd "$fresh/torch" && xargs rm -f)
  echo "$state" > "$fresh/state"
  mv "$fresh" "$wheels"
}

# Our own wheel: from a copy, so that nothing is left in the tree, and the same bytes for the same code.
collect_code() {
  scratch=$(mktemp -d)
  (cd "$root" && tar --exclude=__pycache__ --exclude='*.egg-info' -c src services pyproject.toml README.md LICENSE) \
    | tar -C "$scratch" -x
  rm -rf "$wheels/code"
  SOURCE_DATE_EPOCH=946684800 "$PYTHON" -m pip wheel --quiet --disable-pip-version-check --no-deps \
    --no-build-isolation -w "$wheels/code" "$scratch"
  rm -rf "$scratch"
}

make_wheels() {
  test -x "$PYTHON" || fail "there is no $PYTHON: run make setup, or give another with PYTHON="
  collect_packages
  collect_code
}

make_images() {
  local ours theirs target
  ours=$("$PYTHON" -c 'import sys; print(*sys.version_info[:2])')
  theirs=$(docker run --rm --network none --entrypoint python3 "$BASE" -c 'import sys; print(*sys.version_info[:2])')
  test "$ours" = "$theirs" || fail "the wheels are for Python ${ours/ /.}, but $BASE has ${theirs/ /.}; give PYTHON="
  for target in registry selector trainer node; do
    docker build --quiet --network none --build-arg BASE="$BASE" --target "$target" -t "peerloom-$target:$TAG" "$here" \
      > /dev/null
    echo "peerloom-$target:$TAG is ready"
  done
}

case "${1:-all}" in
  base) make_base ;;
  wheels) make_wheels ;;
  images) make_images ;;
  all) make_base && make_wheels && make_images ;;
  *) fail "unknown part ${1@Q}: base, wheels, images, or nothing for all" ;;
esac
