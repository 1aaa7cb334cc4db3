#include "animation.h"

#include "ns3/simulator.h"

#include <cmath>
#include <iomanip>

namespace peerloom
{

namespace
{

constexpr double kRadius = 45;
constexpr double kCentre = 50;
const char* const kCounters[] = {"sent bytes", "received bytes", "dropped packets"};

std::string
Describe(const Station& station)
{
    std::string text = std::to_string(station.index);
    text += station.tap.empty() ? " relay" : " " + station.tap;
    text += station.set ? " set " + std::to_string(*station.set) : "";
    return text + (station.up ? "" : " down");
}

std::string
Colour(const Station& station)
{
    if (!station.up)
    {
        return R"(r="200" g="40" b="40")";
    }
    return station.tap.empty() ? R"(r="120" g="140" b="170")" : R"(r="30" g="140" b="60")";
}

// A tap's name may hold anything but a slash and blanks.
std::string
Escape(const std::string& text)
{
    static const std::map<char, std::string> entities{{'&', "&amp;"}, {'<', "&lt;"}, {'"', "&quot;"}};
    std::string escaped;
    for (char each : text)
    {
        auto entity = entities.find(each);
        escaped += entity == entities.end() ? std::string(1, each) : entity->second;
    }
    return escaped;
}

} // namespace

Animation::Animation(const Options& options, const Membership& membership)
    : m_membership(membership),
      m_file(options.netanim)
{
    if (!m_file)
    {
        throw BadOption("--netanim=" + options.netanim +
                        ": can't write there; allowed is a file in a folder that exists");
    }
    m_file << std::setprecision(10) << "<anim ver=\"netanim-3.108\" filetype=\"animation\" >\n";
    WriteTopology(options);
    for (size_t counter = 0; counter < std::size(kCounters); ++counter)
    {
        m_file << "<ncs ncId=\"" << counter << "\" n=\"" << kCounters[counter] << "\" t=\"DOUBLE\" />\n";
    }
    for (const Station& station : membership.stations)
    {
        m_file << "<nu p=\"s\" t=\"0\" id=\"" << station.index << "\" w=\"2\" h=\"2\" />\n";
        Show(station);
    }
}

// The nodes stand in a circle around the switch of a wan.
void
Animation::WriteTopology(const Options& options)
{
    size_t nodes = m_membership.stations.size();
    for (size_t index = 0; index < nodes; ++index)
    {
        double angle = 2 * M_PI * index / nodes;
        m_file << "<node id=\"" << index << "\" sysId=\"0\" locX=\"" << kCentre + kRadius * std::cos(angle)
               << "\" locY=\"" << kCentre + kRadius * std::sin(angle) << "\" />\n";
    }
    if (options.medium == "wan")
    {
        m_file << "<node id=\"" << nodes << "\" sysId=\"0\" locX=\"" << kCentre << "\" locY=\"" << kCentre
               << "\" />\n<nu p=\"d\" t=\"0\" id=\"" << nodes << "\" descr=\"switch\" />\n";
    }
    for (const Station& station : m_membership.stations)
    {
        if (options.medium == "csma")
        {
            m_file << "<nonp2plinkproperties id=\"" << station.index << "\" ipAddress=\"" << station.mac
                   << "\" channelType=\"ns3::CsmaChannel\" />\n";
            continue;
        }
        auto own = options.links.find(station.index);
        const LinkOptions& link = own == options.links.end() ? options.link : own->second;
        m_file << "<link fromId=\"" << station.index << "\" toId=\"" << nodes << "\" fd=\"\" td=\"\" ld=\""
               << link.bitsPerSecond / 1e6 << " Mbps " << link.delaySeconds * 1e3 << " ms\" />\n";
    }
}

Animation::~Animation()
{
    m_file << "</anim>\n";
}

void
Animation::Start()
{
    ns3::Simulator::Schedule(ns3::Seconds(1), &Animation::Count, this);
}

void
Animation::Show(const Station& station)
{
    std::string head = " t=\"" + std::to_string(ns3::Simulator::Now().GetSeconds()) + "\" id=\"" +
                       std::to_string(station.index) + "\" ";
    m_file << "<nu p=\"c\"" << head << Colour(station) << " />\n";
    m_file << "<nu p=\"d\"" << head << "descr=\"" << Escape(Describe(station)) << "\" />\n";
}

void
Animation::Count()
{
    double now = ns3::Simulator::Now().GetSeconds();
    for (const Station& station : m_membership.stations)
    {
        uint64_t values[] = {station.sent.bytes, station.received.bytes, station.dropped};
        for (size_t counter = 0; counter < std::size(values); ++counter)
        {
            m_file << "<nc c=\"" << counter << "\" i=\"" << station.index << "\" t=\"" << now << "\" v=\""
                   << values[counter] << "\" />\n";
        }
    }
    m_file.flush();
    Start();
}

} // namespace peerloom
