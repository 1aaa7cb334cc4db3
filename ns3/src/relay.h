#pragma once

// A node without a host: it sends UDP datagrams to others of its kind, stores what it gets, and relays it once.

#include "membership.h"

#include "ns3/random-variable-stream.h"

#include <deque>

namespace peerloom
{

class Relay
{
  public:
    // How many datagrams a node keeps; the oldest goes first.
    static constexpr size_t kStoredPackets = 1000;

    // peers: the stations without taps, this one among them. All of them together put bitsPerSecond on the
    // network, relayed copies included; 0 sends nothing.
    Relay(Membership& membership,
          uint32_t self,
          std::vector<uint32_t> peers,
          uint64_t bitsPerSecond,
          uint32_t mtu);

    uint64_t Relayed() const;
    size_t Stored() const;

  private:
    void SendNext();
    void Send(ns3::Ptr<ns3::Packet> datagram);
    void ScheduleNext();
    Station& Self() const;
    bool Receive(ns3::Ptr<ns3::NetDevice>,
                 ns3::Ptr<const ns3::Packet> packet,
                 uint16_t protocol,
                 const ns3::Address& from,
                 const ns3::Address& to,
                 ns3::NetDevice::PacketType);
    void Store(const ns3::Packet& packet);

    Membership& m_membership;
    uint32_t m_self;
    std::vector<uint32_t> m_peers; // without this one
    uint32_t m_datagramBytes;
    double m_meanInterval; // seconds; 0: never
    ns3::Ptr<ns3::UniformRandomVariable> m_choice;
    ns3::Ptr<ns3::ExponentialRandomVariable> m_wait;
    std::deque<ns3::Ptr<ns3::Packet>> m_store;
    uint64_t m_relayed = 0;
};

} // namespace peerloom
