#pragma once

// An access link a node, full duplex, each with its own rate and delay, into one switch that forwards
// between them at no cost.

#include "medium.h"
#include "station_device.h"

#include "ns3/error-model.h"
#include "ns3/simple-channel.h"
#include "ns3/simple-net-device.h"

namespace peerloom
{

class Wan : public Medium
{
  public:
    Wan(const Options& options, Membership& membership);

    void Leave(Station& station) override;
    void Join(Station& station) override;
    void SetRate(const std::vector<uint32_t>& nodes, uint64_t bitsPerSecond) override;
    void SetDelay(const std::vector<uint32_t>& nodes, double seconds) override;
    bool PerNode() const override;

  private:
    using Device = StationDevice<ns3::SimpleNetDevice, 0>;

    struct Link
    {
        ns3::Ptr<Device> near;               // the station's end
        ns3::Ptr<ns3::SimpleNetDevice> far; // the switch's end
        ns3::Ptr<ns3::SimpleChannel> channel;
    };

    void AddLink(Station& station, const LinkOptions& link);
    bool Receive(ns3::Ptr<ns3::NetDevice> port,
                 ns3::Ptr<const ns3::Packet> packet,
                 uint16_t protocol,
                 const ns3::Address& from,
                 const ns3::Address& to,
                 ns3::NetDevice::PacketType);
    void Forward(uint32_t from, uint32_t to, const Frame& frame);

    Membership& m_membership;
    uint32_t m_mtu;
    ns3::Ptr<ns3::Node> m_switch;
    std::vector<Link> m_links;
};

} // namespace peerloom
