#include "commands.h"

#include "quantities.h"

#include "ns3/simulator.h"

#include <cmath>
#include <iomanip>
#include <numeric>
#include <set>
#include <sstream>
#include <sys/resource.h>

namespace peerloom
{

namespace
{

struct BadCommand : std::runtime_error
{
    using std::runtime_error::runtime_error;
};

const Json&
Field(const Json::Object& request, const std::string& name, const std::string& allowed)
{
    auto field = request.find(name);
    if (field == request.end())
    {
        throw BadCommand(Quote(name) + " is missing: " + allowed);
    }
    return field->second;
}

double
NumberOf(const Json::Object& request, const std::string& name)
{
    const double* number = std::get_if<double>(&Field(request, name, "a number").value);
    if (number == nullptr)
    {
        throw BadCommand(Quote(name) + " must be a number");
    }
    return *number;
}

void
AllowOnly(const Json::Object& request, const std::set<std::string>& names)
{
    for (const auto& [name, value] : request)
    {
        if (name != "do" && names.count(name) == 0)
        {
            std::string known = "do";
            for (const std::string& each : names)
            {
                known += ", " + each;
            }
            throw BadCommand("unknown name " + Quote(name) + "; allowed are " + known);
        }
    }
}

double
CpuSeconds()
{
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
           1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

std::string
Refusal(const std::string& reason)
{
    return "{\"ok\":false,\"error\":" + Quote(reason) + "}";
}

} // namespace

Commands::Commands(Membership& membership,
                   Medium& medium,
                   LagMeter& lag,
                   const std::map<uint32_t, std::unique_ptr<Relay>>& relays)
    : m_membership(membership),
      m_medium(medium),
      m_lag(lag),
      m_relays(relays)
{
}

std::string
Commands::Answer(const std::string& line)
{
    using Action = void (Commands::*)(const Json::Object&);
    static const std::map<std::string, Action> actions{{"leave", &Commands::Leave},
                                                       {"join", &Commands::Join},
                                                       {"loss", &Commands::Loss},
                                                       {"rate", &Commands::Rate},
                                                       {"delay", &Commands::Delay},
                                                       {"partition", &Commands::Partition},
                                                       {"heal", &Commands::Heal}};
    const std::string kinds = "delay, heal, join, leave, loss, partition, rate or stats";
    try
    {
        Json json = ReadJson(line);
        const auto* request = std::get_if<Json::Object>(&json.value);
        if (request == nullptr)
        {
            throw BadCommand("a command is an object, as in {\"do\":\"stats\"}");
        }
        const auto* name = std::get_if<std::string>(&Field(*request, "do", kinds).value);
        if (name != nullptr && *name == "stats")
        {
            AllowOnly(*request, {});
            return Stats();
        }
        auto action = name == nullptr ? actions.end() : actions.find(*name);
        if (action == actions.end())
        {
            throw BadCommand("\"do\" must be " + kinds + (name ? ", not " + Quote(*name) : ""));
        }
        (this->*action->second)(*request);
        return "{\"ok\":true}";
    }
    catch (const std::runtime_error& bad)
    {
        return Refusal(bad.what());
    }
}

void
Commands::Leave(const Json::Object& request)
{
    AllowOnly(request, {"nodes"});
    for (uint32_t node : NodesOf(request))
    {
        Station& station = m_membership.stations[node];
        if (station.up)
        {
            station.up = false;
            m_medium.Leave(station);
            Watch(station);
        }
    }
}

void
Commands::Join(const Json::Object& request)
{
    AllowOnly(request, {"nodes"});
    for (uint32_t node : NodesOf(request))
    {
        Station& station = m_membership.stations[node];
        if (!station.up)
        {
            m_medium.Join(station);
            station.up = true;
            Watch(station);
        }
    }
}

void
Commands::Loss(const Json::Object& request)
{
    AllowOnly(request, {"nodes", "ratio"});
    double ratio = CheckRatio(NumberOf(request, "ratio"));
    for (uint32_t node : NodesOf(request))
    {
        m_membership.stations[node].loss = ratio;
    }
}

void
Commands::Rate(const Json::Object& request)
{
    AllowOnly(request, {"nodes", "bits_per_s"});
    uint64_t rate = CheckRate(NumberOf(request, "bits_per_s"));
    m_medium.SetRate(NodesOfLinks(request), rate);
}

void
Commands::Delay(const Json::Object& request)
{
    AllowOnly(request, {"nodes", "seconds"});
    double delay = CheckDelay(NumberOf(request, "seconds"));
    m_medium.SetDelay(NodesOfLinks(request), delay);
}

void
Commands::Partition(const Json::Object& request)
{
    AllowOnly(request, {"sets"});
    const std::string shape = "a list of lists of nodes, as in [[0,1],[2,3]]";
    const auto* sets = std::get_if<Json::Array>(&Field(request, "sets", shape).value);
    if (sets == nullptr)
    {
        throw BadCommand("\"sets\" must be " + shape);
    }
    std::map<uint32_t, uint32_t> side;
    for (uint32_t set = 0; set < sets->size(); ++set)
    {
        for (uint32_t node : Nodes((*sets)[set]))
        {
            if (!side.emplace(node, set).second)
            {
                throw BadCommand("node " + std::to_string(node) + " is in two sets; each may be in one");
            }
        }
    }
    for (Station& station : m_membership.stations)
    {
        auto own = side.find(station.index);
        station.set = own == side.end() ? std::nullopt : std::optional<uint32_t>(own->second);
        Watch(station);
    }
}

void
Commands::Heal(const Json::Object& request)
{
    AllowOnly(request, {});
    for (Station& station : m_membership.stations)
    {
        station.set.reset();
        Watch(station);
    }
}

std::string
Commands::Stats()
{
    m_lag.Measure();
    std::ostringstream text;
    text << std::fixed << std::setprecision(6) << "{\"ok\":true,\"simulated_s\":"
         << ns3::Simulator::Now().GetSeconds() << ",\"wall_s\":" << LagMeter::Wall()
         << ",\"lag_s\":" << m_lag.LastSeconds() << ",\"lag_worst_s\":" << m_lag.WorstSeconds()
         << ",\"cpu_s\":" << CpuSeconds() << ",\"nodes\":[";
    for (const Station& station : m_membership.stations)
    {
        text << (station.index > 0 ? "," : "") << StatsOf(station);
    }
    text << "]}";
    return text.str();
}

std::string
Commands::StatsOf(const Station& station) const
{
    std::ostringstream text;
    text << "{\"node\":" << station.index
         << ",\"tap\":" << (station.tap.empty() ? "null" : Quote(station.tap))
         << ",\"up\":" << (station.up ? "true" : "false") << ",\"sent_bytes\":" << station.sent.bytes
         << ",\"sent_packets\":" << station.sent.packets
         << ",\"received_bytes\":" << station.received.bytes
         << ",\"received_packets\":" << station.received.packets
         << ",\"dropped_packets\":" << station.dropped;
    auto relay = m_relays.find(station.index);
    if (relay != m_relays.end())
    {
        text << ",\"relayed_packets\":" << relay->second->Relayed()
             << ",\"stored_packets\":" << relay->second->Stored();
    }
    text << "}";
    return text.str();
}

std::vector<uint32_t>
Commands::Nodes(const Json& list) const
{
    const auto* array = std::get_if<Json::Array>(&list.value);
    if (array == nullptr)
    {
        throw BadCommand("nodes are a list of their numbers, as in [0,3]");
    }
    std::vector<uint32_t> nodes;
    for (const Json& each : *array)
    {
        const double* number = std::get_if<double>(&each.value);
        if (number == nullptr || *number < 0 || *number >= m_membership.stations.size() ||
            *number != std::floor(*number))
        {
            throw BadCommand("unknown node; nodes are numbered from 0 to " +
                             std::to_string(m_membership.stations.size() - 1));
        }
        nodes.push_back(static_cast<uint32_t>(*number));
    }
    return nodes;
}

std::vector<uint32_t>
Commands::NodesOf(const Json::Object& request) const
{
    return Nodes(Field(request, "nodes", "a list of nodes, as in [0,3]"));
}

// Absent means all; where all share one channel, only all will do.
std::vector<uint32_t>
Commands::NodesOfLinks(const Json::Object& request) const
{
    std::vector<uint32_t> all(m_membership.stations.size());
    std::iota(all.begin(), all.end(), 0);
    auto nodes = request.find("nodes");
    if (nodes == request.end())
    {
        return all;
    }
    std::vector<uint32_t> named = Nodes(nodes->second);
    if (!m_medium.PerNode() && std::set<uint32_t>(named.begin(), named.end()).size() != all.size())
    {
        throw BadCommand("a csma channel has one rate and one delay for all nodes: leave \"nodes\" out, or "
                         "take --medium=wan");
    }
    return named;
}

void
Commands::Watch(const Station& station) const
{
    if (watcher)
    {
        watcher(station);
    }
}

} // namespace peerloom
