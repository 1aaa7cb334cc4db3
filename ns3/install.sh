#!/bin/sh
# Sets up a Debian or Ubuntu machine for the ns-3 back end and builds the program. Run it again at any time:
# what is there already is left as it is. Tried with Debian 12, whose ns-3 is 3.37.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
packages="ns3 libns3-dev libgsl-dev libxml2-dev libsqlite3-dev cmake g++ make iproute2 ethtool iputils-ping iperf3"

say() {
  printf 'ns3/install.sh: %s\n' "$1"
}

fail() {
  say "$1" >&2
  exit 1
}

missing=""
for package in $packages; do
  state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  [ "$state" = "install ok installed" ] || missing="$missing $package"
done

if [ -z "$missing" ]; then
  say "all packages are installed"
else
  command -v apt-get >/dev/null || fail "there is no apt-get here; install by hand:$missing"
  [ "$(id -u)" = 0 ] || fail "needs root to install$missing; run: sudo $0"
  say "installing$missing"
  apt-get update -qq
  # shellcheck disable=SC2086 # one word a package
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

say "building ns3/build/peerloom-ns3"
cmake -S "$here" -B "$here/build" >/dev/null
cmake --build "$here/build" --parallel >/dev/null

# The program finds ns-3's tap creator itself, wherever Debian put it; a tap needs the device too.
ls /usr/libexec/ns3/*-tap-creator >/dev/null 2>&1 || fail "ns-3's tap creator isn't in /usr/libexec/ns3: reinstall the package ns3"
[ -c /dev/net/tun ] || fail "there is no /dev/net/tun; run: modprobe tun"
say "ready: $here/build/peerloom-ns3"
