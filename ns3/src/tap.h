#pragma once

// The way out of ns-3: a TapBridge that hands its host only the frames meant for it.

#include "membership.h"

#include "ns3/tap-bridge.h"

namespace peerloom
{

// Throws BadOption when this namespace has no such tap, it is down, or another program holds it.
void CheckTap(const std::string& flag, const std::string& name);

// Whether Linux has noticed that the tap is open: until then, up to a second, its bridge drops all frames.
bool TapRuns(const std::string& name);

class FilteringTapBridge : public ns3::TapBridge
{
  public:
    FilteringTapBridge(Membership& membership, Station& station);

    // Bridges the station's device to its tap, from the start of the simulation.
    static void Install(Membership& membership, Station& station);

  private:
    bool Receive(ns3::Ptr<ns3::NetDevice> device,
                 ns3::Ptr<const ns3::Packet> packet,
                 uint16_t protocol,
                 const ns3::Address& from,
                 const ns3::Address& to,
                 ns3::NetDevice::PacketType type);

    Membership& m_membership;
    Station& m_station;
};

} // namespace peerloom
