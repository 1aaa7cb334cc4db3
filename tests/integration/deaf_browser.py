"""Starts the browser named by its first argument, deaf to what becomes of the machine's network interfaces.

Chromium breaks off every request, to loopback as well, as soon as an address comes or goes anywhere
(net::ERR_NETWORK_CHANGED): tests beside it build networks. Without netlink, it never hears of that.
"""

import errno
import os
import socket
import sys

import pyseccomp

if __name__ == "__main__":
    calls = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    netlink = pyseccomp.Arg(0, pyseccomp.EQ, socket.AF_NETLINK)
    calls.add_rule(pyseccomp.ERRNO(errno.EAFNOSUPPORT), "socket", netlink)
    calls.load()
    os.execv(sys.argv[1], sys.argv[1:])
