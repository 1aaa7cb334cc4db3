#include "options.h"

#include "quantities.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <functional>
#include <sstream>

namespace peerloom
{

const char* const kUsage =
    "peerloom-ns3: an ns-3 network in real time between the taps of this network namespace.\n"
    "  --nodes=N                      nodes in the network, 2 to 500 (20)\n"
    "  --medium=csma|wan              one shared channel, or an access link a node (csma)\n"
    "  --rate=1Gbps --delay=1us       of the channel, or of every access link\n"
    "  --loss=RATIO                   of the frames to each node, 0 to 1 (0)\n"
    "  --mtu=BYTES                    576 to 65000 (9000)\n"
    "  --tap=INDEX:NAME:MAC           node INDEX is the host with this MAC behind this tap (repeatable)\n"
    "  --link=INDEX:RATE:DELAY:LOSS   the access link of one node; wan only (repeatable)\n"
    "  --background=RATE              UDP between the nodes without taps, which relay and store it (0)\n"
    "  --netanim=FILE --pcap=PREFIX   an animation for NetAnim; a capture a node\n"
    "  --control=PATH                 the unix socket for commands; required\n"
    "  --seed=N                       of losses and background traffic (1)\n";

namespace
{

constexpr uint32_t kMaximumNodes = 500;
constexpr size_t kMaximumTapName = 15; // IFNAMSIZ less its end

std::vector<std::string>
Split(const std::string& text, size_t parts)
{
    std::vector<std::string> found;
    std::istringstream stream(text);
    std::string part;
    // The last part takes the rest: a MAC has colons of its own.
    while (found.size() + 1 < parts && std::getline(stream, part, ':'))
    {
        found.push_back(part);
    }
    if (std::getline(stream, part))
    {
        found.push_back(part);
    }
    return found.size() == parts ? found : std::vector<std::string>(parts);
}

std::string
ReadMac(std::string text)
{
    std::transform(text.begin(), text.end(), text.begin(), ::tolower);
    bool good = text.size() == 17;
    for (size_t at = 0; good && at < text.size(); ++at)
    {
        good = at % 3 == 2 ? text[at] == ':' : std::isxdigit(static_cast<unsigned char>(text[at])) != 0;
    }
    // An odd first byte is a group's address, which no interface has.
    if (!good || std::strchr("02468ace", text[1]) == nullptr)
    {
        throw BadQuantity("INDEX:TAP:MAC, with a MAC of one interface, as in 3:pl3:02:00:00:00:00:03");
    }
    return text;
}

void
AddTap(Options& options, const std::string& text)
{
    std::vector<std::string> parts = Split(text, 3);
    std::string mac = ReadMac(parts[2]);
    uint32_t index = ReadCount(parts[0], 0, kMaximumNodes - 1);
    if (parts[1].empty() || parts[1].size() > kMaximumTapName)
    {
        throw BadQuantity("INDEX:TAP:MAC, with a tap's name of 1 to 15 characters");
    }
    for (const auto& [other, tap] : options.taps)
    {
        if (other == index || tap.name == parts[1] || tap.mac == mac)
        {
            throw BadQuantity("an index, a tap and a MAC of its own; node " + std::to_string(other) +
                              " has one of these already");
        }
    }
    options.taps[index] = {parts[1], mac};
}

void
AddLink(Options& options, const std::string& text)
{
    std::vector<std::string> parts = Split(text, 4);
    if (parts[0].empty())
    {
        throw BadQuantity("INDEX:RATE:DELAY:LOSS, as in 3:50Mbps:10ms:0.01");
    }
    uint32_t index = ReadCount(parts[0], 0, kMaximumNodes - 1);
    LinkOptions link{ReadRate(parts[1]), ReadDelay(parts[2]), ReadRatio(parts[3])};
    if (!options.links.emplace(index, link).second)
    {
        throw BadQuantity("one link a node; node " + parts[0] + " has one already");
    }
}

std::string
ReadMedium(const std::string& text)
{
    if (text != "csma" && text != "wan")
    {
        throw BadQuantity("csma or wan");
    }
    return text;
}

using Setter = std::function<void(Options&, const std::string&)>;

const std::map<std::string, Setter>&
Setters()
{
    static const std::map<std::string, Setter> setters{
        {"nodes", [](auto& o, auto& v) { o.nodes = ReadCount(v, 2, kMaximumNodes); }},
        {"medium", [](auto& o, auto& v) { o.medium = ReadMedium(v); }},
        {"rate", [](auto& o, auto& v) { o.link.bitsPerSecond = ReadRate(v); }},
        {"delay", [](auto& o, auto& v) { o.link.delaySeconds = ReadDelay(v); }},
        {"loss", [](auto& o, auto& v) { o.link.loss = ReadRatio(v); }},
        {"mtu", [](auto& o, auto& v) { o.mtu = ReadCount(v, 576, 65000); }},
        {"tap", AddTap},
        {"link", AddLink},
        {"background",
         [](auto& o, auto& v) { o.backgroundBitsPerSecond = v == "0" ? 0 : ReadRate(v); }},
        {"netanim", [](auto& o, auto& v) { o.netanim = v; }},
        {"pcap", [](auto& o, auto& v) { o.pcap = v; }},
        {"control", [](auto& o, auto& v) { o.control = v; }},
        {"seed", [](auto& o, auto& v) { o.seed = ReadCount(v, 1, UINT32_MAX); }},
    };
    return setters;
}

void
ReadOption(Options& options, const std::string& argument)
{
    size_t equals = argument.find('=');
    std::string name = argument.substr(0, equals);
    auto setter = Setters().find(name.substr(0, 2) == "--" ? name.substr(2) : "");
    if (setter == Setters().end() || equals == std::string::npos)
    {
        throw BadOption(argument + ": flags are written --name=value; the names are listed by --help");
    }
    try
    {
        setter->second(options, argument.substr(equals + 1));
    }
    catch (const BadQuantity& bad)
    {
        throw BadOption(argument + ": allowed is " + bad.what());
    }
}

// What a single flag can't tell.
void
CheckTogether(const Options& options)
{
    std::string range = ": nodes are numbered from 0 to " + std::to_string(options.nodes - 1) + " (--nodes)";
    for (const auto& [index, tap] : options.taps)
    {
        if (index >= options.nodes)
        {
            throw BadOption("--tap=" + std::to_string(index) + ":" + tap.name + range);
        }
    }
    if (!options.links.empty() && options.links.rbegin()->first >= options.nodes)
    {
        throw BadOption("--link=" + std::to_string(options.links.rbegin()->first) + range);
    }
    if (!options.links.empty() && options.medium == "csma")
    {
        throw BadOption("--link: a csma channel has one rate and one delay for all; take --medium=wan, or "
                        "--rate, --delay and --loss");
    }
    if (options.backgroundBitsPerSecond > 0 && options.nodes < options.taps.size() + 2)
    {
        throw BadOption("--background: needs two nodes without taps; raise --nodes to " +
                        std::to_string(options.taps.size() + 2) + " or more");
    }
    if (options.control.empty())
    {
        throw BadOption("--control: a path for the control socket is required");
    }
}

} // namespace

Options
ReadOptions(const std::vector<std::string>& arguments)
{
    Options options;
    for (const std::string& argument : arguments)
    {
        if (argument == "--help")
        {
            options.help = true;
            return options;
        }
        ReadOption(options, argument);
    }
    CheckTogether(options);
    return options;
}

} // namespace peerloom
