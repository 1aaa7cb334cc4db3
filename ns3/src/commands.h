#pragma once

// What the control socket can ask for: faults, and the figures. Runs in the simulator's thread.

#include "json.h"
#include "lag.h"
#include "medium.h"
#include "relay.h"

#include <memory>

namespace peerloom
{

class Commands
{
  public:
    // Told when a station left, joined or changed its side of a partition.
    using Watcher = std::function<void(const Station&)>;

    Commands(Membership& membership,
             Medium& medium,
             LagMeter& lag,
             const std::map<uint32_t, std::unique_ptr<Relay>>& relays);

    Watcher watcher{};

    // The answer, one line of JSON, to one line. Never throws.
    std::string Answer(const std::string& line);

  private:
    void Leave(const Json::Object& request);
    void Join(const Json::Object& request);
    void Loss(const Json::Object& request);
    void Rate(const Json::Object& request);
    void Delay(const Json::Object& request);
    void Partition(const Json::Object& request);
    void Heal(const Json::Object& request);
    std::string Stats();
    std::string StatsOf(const Station& station) const;
    std::vector<uint32_t> Nodes(const Json& list) const;
    std::vector<uint32_t> NodesOf(const Json::Object& request) const;
    std::vector<uint32_t> NodesOfLinks(const Json::Object& request) const;
    void Watch(const Station& station) const;

    Membership& m_membership;
    Medium& m_medium;
    LagMeter& m_lag;
    const std::map<uint32_t, std::unique_ptr<Relay>>& m_relays;
};

} // namespace peerloom
