#pragma once

// Who is in the network, who hears whom, and what each node has sent and received. Both media and both
// kinds of nodes (behind a tap, or relaying) ask here before a frame enters and before it is handed over.

#include "ns3/mac48-address.h"
#include "ns3/net-device.h"
#include "ns3/node.h"
#include "ns3/packet.h"
#include "ns3/random-variable-stream.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace peerloom
{

constexpr uint32_t kEthernetHeaderBytes = 14;

struct Traffic
{
    uint64_t bytes = 0; // of Ethernet frames without their check sequence, as an interface counts them
    uint64_t packets = 0;
};

struct Station
{
    uint32_t index;
    std::string tap; // empty: a node without a host, which relays and stores
    ns3::Mac48Address mac;
    bool up = true;
    std::optional<uint32_t> set{}; // its side of a partition; none: it hears and is heard by all
    double loss = 0;               // ratio of the frames to it that are lost
    Traffic sent{};
    Traffic received{};
    uint64_t dropped = 0;
    ns3::Ptr<ns3::Node> node{};
    ns3::Ptr<ns3::NetDevice> device{};
};

struct Frame
{
    const ns3::Packet& payload;
    ns3::Mac48Address from;
    ns3::Mac48Address to;
    uint16_t protocol;
};

class Membership
{
  public:
    using Observer = std::function<void(const Station&, const Frame&)>;

    explicit Membership(std::vector<Station> stations);

    std::vector<Station> stations;
    Observer observer{}; // sees every frame that a station sends or receives

    // Whether a frame may enter the network here; learns its sender's address. Counts a drop if not.
    bool Admit(Station& station, const Frame& frame);
    // Whether a frame that arrived at a station is for it and reaches it: counted as received or dropped.
    bool Deliver(Station& station, const Frame& frame);
    static bool Hears(const Station& one, const Station& other);
    // The station behind an address, or none when nothing came from there yet.
    std::optional<uint32_t> Find(const ns3::Mac48Address& address) const;

  private:
    std::unordered_map<uint64_t, uint32_t> m_learned;
    ns3::Ptr<ns3::UniformRandomVariable> m_uniform;
};

} // namespace peerloom
