#include "tap.h"

#include "options.h"

#include "ns3/enum.h"
#include "ns3/node.h"
#include "ns3/string.h"

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <fcntl.h>
#include <glob.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace peerloom
{

namespace
{

// The program of ns-3 that opens a tap, or "" where it isn't installed.
std::string
FindTapCreator()
{
    for (const char* pattern : {"/usr/libexec/ns3/*-tap-creator",
                                "/usr/lib/ns3*/*-tap-creator",
                                "/usr/local/libexec/ns3/*-tap-creator"})
    {
        glob_t found{};
        std::string path = glob(pattern, 0, nullptr, &found) == 0 ? found.gl_pathv[0] : "";
        globfree(&found);
        if (!path.empty())
        {
            return path;
        }
    }
    return "";
}

const std::string&
TapCreator()
{
    static const std::string path = FindTapCreator();
    return path;
}

short
FlagsOf(const std::string& name)
{
    int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq request{};
    std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
    bool known = ioctl(any, SIOCGIFFLAGS, &request) == 0;
    close(any);
    return known ? request.ifr_flags : 0;
}

// Opens and closes the tap, as ns-3 will: what would make it abort is an error with a name here.
int
TryTap(const std::string& name)
{
    int tun = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    if (tun < 0)
    {
        return errno;
    }
    ifreq request{};
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
    int error = ioctl(tun, TUNSETIFF, &request) == 0 ? 0 : errno;
    close(tun);
    return error;
}

} // namespace

void
CheckTap(const std::string& flag, const std::string& name)
{
    if (TapCreator().empty())
    {
        throw BadOption(flag + ": ns-3's tap creator isn't in /usr/libexec/ns3; run ns3/install.sh");
    }
    // Asked first, because opening a tap that isn't there makes it.
    if (if_nametoindex(name.c_str()) == 0)
    {
        throw BadOption(flag + ": there is no interface " + name + " in this network namespace; make it with: "
                        "ip tuntap add dev " + name + " mode tap");
    }
    int error = TryTap(name);
    if (error == 0 && (FlagsOf(name) & IFF_UP) == 0)
    {
        throw BadOption(flag + ": the tap is down, and writing to it would end ns-3; run: ip link set " + name +
                        " up");
    }
    if (error == EBUSY)
    {
        throw BadOption(flag + ": another program holds the tap " + name);
    }
    if (error == EINVAL)
    {
        throw BadOption(flag + ": " + name + " is no tap; allowed is a tap made with: ip tuntap add");
    }
    if (error != 0)
    {
        throw BadOption(flag + ": can't open the tap by /dev/net/tun (" + std::strerror(error) +
                        "); this needs root and the module tun");
    }
}

bool
TapRuns(const std::string& name)
{
    return (FlagsOf(name) & IFF_RUNNING) != 0;
}

FilteringTapBridge::FilteringTapBridge(Membership& membership, Station& station)
    : m_membership(membership),
      m_station(station)
{
}

void
FilteringTapBridge::Install(Membership& membership, Station& station)
{
    auto bridge = ns3::CreateObject<FilteringTapBridge>(membership, station);
    bridge->SetAttribute("Mode", ns3::EnumValue(ns3::TapBridge::USE_BRIDGE));
    bridge->SetAttribute("DeviceName", ns3::StringValue(station.tap));
    station.node->AddDevice(bridge);
    bridge->SetBridgedNetDevice(station.device);
    station.device->SetPromiscReceiveCallback(
        ns3::MakeCallback(&FilteringTapBridge::Receive, ns3::PeekPointer(bridge)));
}

bool
FilteringTapBridge::Receive(ns3::Ptr<ns3::NetDevice> device,
                            ns3::Ptr<const ns3::Packet> packet,
                            uint16_t protocol,
                            const ns3::Address& from,
                            const ns3::Address& to,
                            ns3::NetDevice::PacketType type)
{
    Frame frame{*packet,
                ns3::Mac48Address::ConvertFrom(from),
                ns3::Mac48Address::ConvertFrom(to),
                protocol};
    return !m_membership.Deliver(m_station, frame) ||
           ReceiveFromBridgedDevice(device, packet, protocol, from, to, type);
}

} // namespace peerloom

// Debian's TapBridge execs its tap creator by the path at which the package was built. The dynamic linker
// prefers this definition to libc's, and it puts the installed path in its place.
extern "C" int
execlp(const char* file, const char* first, ...)
{
    constexpr int kMaximumArguments = 32;
    char* arguments[kMaximumArguments + 1] = {const_cast<char*>(first)};
    va_list rest;
    va_start(rest, first);
    int count = 1;
    while (count < kMaximumArguments && arguments[count - 1] != nullptr)
    {
        arguments[count++] = va_arg(rest, char*);
    }
    va_end(rest);
    if (std::strstr(file, "tap-creator") != nullptr)
    {
        return execvp(peerloom::TapCreator().c_str(), arguments);
    }
    return execvp(file, arguments);
}
